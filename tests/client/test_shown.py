"""Answers and frontiers in notebooks: figures of every kind of answer, and no text that becomes markup."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.client.shown import Answer, Frontier, Rows, answer_of, plain
from tests.stored_answers import stored

TAGS = {"p", "a", "table", "thead", "tbody", "tr", "th", "td", "svg", "circle"}
HOSTILE = st.text(max_size=40) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "a|b\n|c",
        "[x](javascript:alert(1))",
        "`x` *y* &lt;",
    ]
)


class Read(HTMLParser):
    """The tags, attributes and text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, Any] = {}
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def answer(name: str, **changes: Any) -> Answer:
    advice = {"id": "a1", "name": name, "links": {"html": "https://assay.example/advice/a1"}, "workload": {}}
    return answer_of(advice, stored()[name]["answer"] | changes)


@pytest.mark.parametrize("name", stored())
def test_every_kind_of_answer_displays_itself(name: str) -> None:
    one = answer(name)
    read = Read(one._repr_html_())
    assert one.result["verdict"] in read.text and read.tags <= TAGS
    shown, frame = one._repr_markdown_(), one.frame()
    assert len(frame) == len(one.rows)
    for row in one.rows[:20]:
        assert row["label"] in read.text and plain(row["label"]) in shown
    if one.rows:
        assert list(frame["label"]) == [row["label"] for row in one.rows]
        assert any(f"{row['usd_per_month']:,.0f}" in read.text for row in one.rows)


POINTS = [
    {"label": "a", "output_tokens_per_s_per_user": 50.0, "usd_per_mtok_output": 2.0, "frontier": True},
    {"label": "b", "output_tokens_per_s_per_user": 25.0, "usd_per_mtok_output": 4.0, "frontier": False},
    {"label": "embedding", "output_tokens_per_s_per_user": None, "usd_per_mtok_output": None, "frontier": False},
]


def test_a_frontier_is_a_picture_and_a_frame() -> None:
    frontier = answer("support-chat", pareto=POINTS).frontier()
    html = frontier._repr_html_()
    assert html.count("<circle") == 2 and Read(html).tags <= TAGS
    assert list(frontier.frame()["frontier"]) == [True, False, False]
    assert Frontier([], "none", "")._repr_html_() and len(Frontier([], "none", "").frame()) == 0


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_becomes_markup(title: str, label: str, url: str) -> None:
    rows = [{"rank": 1, "label": label, "basis": title, "usd_per_month": 5.0}]
    one = Rows(rows, title, url)
    read = Read(one._repr_html_())
    assert read.tags <= TAGS and read.attributes.keys() <= {"href", "rel"}
    assert str(read.attributes.get("href", "https://")).startswith(("http://", "https://"))
    lines = one._repr_markdown_().split("\n")
    assert len(lines) == 5 and "<" not in "".join(lines)
    assert len({line.replace("\\|", "").count("|") for line in lines[2:]}) == 1
