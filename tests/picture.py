"""Takes the picture of the README: `python -m tests.picture http://127.0.0.1:8000/advice/ID` of a running service."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FILE = Path(__file__).resolve().parent.parent / "docs" / "answer.png"


def take(address: str) -> None:
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light", locale="en-US")
        page.goto(address, wait_until="networkidle")
        page.screenshot(path=FILE)
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1])
