"""Writes docs/reference/questions.md from questions.yaml."""

from tests.questions import PAGE
from tests.questions.page import page

PAGE.write_text(page())
print(f"wrote {PAGE.name}")
