"""The first screen of an answer, the same on the web page, in a terminal and in Markdown: what to do and why."""

from advisor.report.screen.facts import ORIGINS
from advisor.report.screen.machines import count_word
from advisor.report.screen.question import question_of, title_of
from advisor.report.screen.rows import distinct
from advisor.report.screen.screen import rejected_counts, screen_of
from advisor.report.screen.text import answer_text, markdown_table, screen_markdown, screen_text
