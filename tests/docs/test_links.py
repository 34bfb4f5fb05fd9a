"""Every page of the docs can be reached from the README, and every link within the repository leads somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")


def links(page: Path) -> list[tuple[Path, str]]:
    """(file, heading) of each link that stays in the repository."""
    return [((page.parent / m[1]).resolve() if m[1] else page, m[2] or "") for m in LINK.finditer(page.read_text())]


def headings(page: Path) -> set[str]:
    """The names of the headings in addresses, as GitHub writes them."""
    titles = re.findall(r"^#+ +(.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def reached(start: Path) -> set[Path]:
    found, to_read = {start}, [start]
    while to_read:
        for target, _ in links(to_read.pop()):
            if target.suffix == ".md" and target.exists() and target not in found:
                found.add(target)
                to_read.append(target)
    return found


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "fixtures" / "README.md"]


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target.name}#{heading}"
        for page in pages()
        for target, heading in links(page)
        if not target.exists() or heading and heading not in headings(target)
    ]
    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    assert set(pages()) - reached(ROOT / "README.md") == set()
