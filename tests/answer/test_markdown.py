"""Names in Markdown and CSV files stay names: no HTML, no links, no formulas, no cells of their own."""

import csv
import io

import pytest

from advisor import report
from advisor.report import documents
from advisor.report import markdown_escapes as md
from advisor.result import Answer
from catalog.lists.export import cell
from tests import sample_money

EVIL = "<img src=x onerror=alert(1)> [click](https://evil.example) | `x` *y* __z__ ![p](//evil)\n# Own heading"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("4 x H200 SXM, FP8 (TP2 x 2 replicas)", "4 x H200 SXM, FP8 (TP2 x 2 replicas)"),
        ("near_lossless", "near_lossless"),
        ("_emphasis_", "\\_emphasis\\_"),
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("<b>&lt;", "&lt;b>&amp;lt;"),
        ("one\r\ntwo\u2028three", "one two three"),
        ("\u202eturned\x1b[31m", "turned\\[31m"),
        ("[x](javascript:y)", "\\[x\\](javascript:y)"),
    ],
)
def test_what_has_a_meaning_in_markdown_or_html_is_escaped(text: str, written: str) -> None:
    assert md.escaped(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("# a", "\\# a"), ("- a", "\\- a"), ("1. a", "1\\. a"), ("1.5 a", "1.5 a"), ("> a", "&gt; a"), ("===", "\\===")],
)
def test_a_line_begins_no_heading_no_list_and_no_quotation(text: str, written: str) -> None:
    assert md.paragraph(text) == written


def test_code_cannot_end_its_fence() -> None:
    assert md.fenced("a\n```\nb", "sh") == ["````sh", "a\n```\nb", "````"]


def test_names_in_the_report_and_in_the_memo_stay_names() -> None:
    result = sample_money.result()
    result["workload"]["name"] = result["verdict"] = EVIL
    for r in result["recommendations"]:
        r["label"] = r["provider"] = r["accelerator_name"] = r["instance"] = EVIL
        r["reasons"], r["warnings"] = [EVIL], [EVIL]
        for way in r["money"]["ways_to_pay"]:
            way["provider"] = EVIL
    for rejected in result["rejected"]:
        rejected["detail"] = rejected["accelerator"] = EVIL
    for text in (report.markdown(Answer.read(result)), documents.memo_text(Answer.read(result), 1)):
        assert "onerror" in text and "<img" not in text
        assert "](" not in text.replace("\\](", "") and "\n# Own" not in text
        assert not [line for line in text.splitlines() if line.count("|") - line.count("\\|") not in (0, 3, 5, 6, 11)]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1", ["=1", "b"]]
)
def test_a_formula_is_a_text_in_a_spreadsheet(text: object) -> None:
    assert str(cell(text)).startswith("'")


@pytest.mark.parametrize("value", ["-5.00", "+3", "1e-05", "-1.5e+10", -5.0, 0, None, True, "a-b", ["a", "b"]])
def test_numbers_and_plain_texts_are_left_alone(value: object) -> None:
    assert not str(cell(value)).startswith("'")


def test_credits_of_the_cash_flow_are_numbers() -> None:
    result = sample_money.result()
    result["recommendations"][0]["money"]["cash_flow"][-1]["total_usd"] = -12.5
    rows = list(csv.DictReader(io.StringIO(documents.cash_flow_csv(Answer.read(result), 1))))
    assert rows[-1]["total_usd"] == "-12.50"
