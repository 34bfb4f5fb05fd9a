"""The page of settings lists exactly what the code reads, with its types and defaults."""

from tests import settings_page

PAGE = settings_page.PAGE.read_text()
ROWS = [row for line in PAGE.splitlines() if (row := settings_page.ROW.fullmatch(line))]


def test_the_page_is_up_to_date() -> None:
    """If not: python -m tests.settings_page, then write the meaning of what is new."""
    assert settings_page.updated(PAGE) == PAGE


def test_every_variable_has_one_row_with_a_meaning() -> None:
    assert sorted(row[1] for row in ROWS) == sorted(settings_page.variables())
    assert [row[1] for row in ROWS if not row[4].strip() or row[3].strip() in ("", "x")] == []


def test_a_new_and_a_changed_variable_are_noticed() -> None:
    found = settings_page.read_in(
        'A = env.int("ASSAY_NEW", default=7)  # how many\nB = other("ASSAY_X", default=VAR / "x")'
    )
    assert [(each.name, each.kind, each.default, each.comment) for each in found] == [
        ("ASSAY_NEW", "number", "7", "how many"),
        ("ASSAY_X", "text", None, ""),
    ]
    assert settings_page.updated(PAGE.replace("| number | 15 |", "| number | 16 |")) == PAGE
