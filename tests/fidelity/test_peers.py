"""Other tools' answers beside the scored rows: the join, the scores on the same rows, and the recorded answers."""

from pathlib import Path

import pytest

from advisor.fidelity import stored
from advisor.fidelity.scores import scorecard
from catalog.loading import scored as files
from catalog.models import ScoredRow
from tests.laboratory import peers, report

ROOT = Path(__file__).parents[2]
TOOLS = """
asked_on: 2026-11-25
tools:
  - {slug: one, name: Tool One, method: asked, data: rates}
  - {slug: two, name: Tool Two, method: asked, data: rates}
not_asked:
  - {name: Tool Three, reason: takes no users}
"""


def line(key="a:tpot", measured=10.0, predicted=11.0, **changes):
    row = ScoredRow(
        **{
            "key": key,
            "metric": "tpot_ms_mean",
            "measured": measured,
            "predicted": predicted,
            "bias_fraction": None if predicted is None else predicted / measured - 1,
            "accelerator": "b200",
            "model": "openai/gpt-oss-120b",
            "weights_dtype": "mxfp4",
            "framework": "vllm",
            "chips": 4,
            "layout": "tp4",
            "isl": 1024.0,
            "osl": 8192.0,
            "concurrency": 64.0,
            "source_key": "serving_dated",
        }
        | changes
    )
    return scorecard.line_of(row)


QUESTION = "openai/gpt-oss-120b mxfp4 vllm 4x b200 tp4 1024/8192 c64"


def recorded(folder, *answers):
    (folder / peers.TOOLS).write_text(TOOLS)
    lines = [",".join(peers.COLUMNS), *(",".join(answer) for answer in answers)]
    (folder / peers.ANSWERS).write_text("\n".join(lines) + "\n")
    return peers.read(folder)


def test_a_line_without_a_key_belongs_to_the_row_above(tmp_path):
    found = recorded(tmp_path, ("a:tpot", QUESTION, "one", "9", ""), ("", "", "two", "", "chip not in its catalog"))
    assert [(a.key, a.tool, a.predicted) for a in found.answers] == [("a:tpot", "one", 9.0), ("a:tpot", "two", None)]
    assert peers.unanswered(found) == {"one": {}, "two": {"chip not in its catalog": 1}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (("a:tpot", QUESTION, "three", "9", ""), "'three' is not in tools.yaml"),
        (("a:tpot", QUESTION, "one", "", ""), "neither an answer nor the reason"),
    ],
)
def test_answers_that_cannot_be_used_are_refused(tmp_path, answer, message):
    with pytest.raises(peers.PeersError, match=message):
        recorded(tmp_path, answer)
    with pytest.raises(peers.PeersError, match="a second answer of one to a:tpot"):
        recorded(tmp_path, ("a:tpot", QUESTION, "one", "9", ""), ("a:tpot", QUESTION, "one", "8", ""))


def test_a_row_that_no_longer_exists_fails(tmp_path):
    found = recorded(tmp_path, ("gone:tpot", QUESTION, "one", "9", ""))
    with pytest.raises(peers.PeersError, match="1 rows are no longer scored, such as gone:tpot"):
        peers.paired([line()], found)


def test_an_answer_to_another_question_fails(tmp_path):
    found = recorded(tmp_path, ("a:tpot", QUESTION, "one", "9", ""))
    assert peers.paired([line()], found)["one"]
    with pytest.raises(peers.PeersError, match=r"a:tpot was '.* c64' and is '.* c32'"):
        peers.paired([line(concurrency=32.0)], found)


def test_both_are_scored_on_the_rows_that_the_tool_answered(tmp_path):
    found = recorded(
        tmp_path,
        ("a:tpot", QUESTION, "one", "8", ""),
        ("b:tpot", QUESTION, "one", "", "chip not in its catalog"),
        ("c:tpot", QUESTION, "one", "16", ""),
    )
    lines = [line(), line(key="b:tpot", predicted=100.0), line(key="c:tpot", predicted=None)]
    (only,) = peers.compared(peers.paired(lines, found))
    assert (only.tool, only.figure, only.groups) == ("one", "tpot", 1)
    assert only.peer["n"] == only.ours["n"] == 2
    assert only.peer["median_ape"] == pytest.approx((0.2 + 0.6) / 2)
    assert only.ours["median_ape"] == pytest.approx((0.1 + 1.0) / 2)
    assert only.peer["bias"] == pytest.approx((-0.2 + 0.6) / 2) and only.ours["bias"] == pytest.approx(0.1)


def test_disputed_rows_are_left_out(tmp_path):
    found = recorded(tmp_path, ("a:tpot", QUESTION, "one", "8", ""))
    assert peers.compared(peers.paired([line(circumstance="disputed")], found)) == []


def test_figures_are_scored_apart_and_a_tool_that_is_closer_is_listed(tmp_path):
    keys = [f"{n}:tpot" for n in range(peers.MIN_ROWS)]
    ttft = {"metric": "ttft_ms_mean"}
    found = recorded(
        tmp_path,
        *((key, QUESTION, "one", "10.2", "") for key in keys),
        *((f"{key}:ttft", QUESTION, "one", "13", "") for key in keys),
        *((f"{key}:few", QUESTION, "two", "10", "") for key in keys[1:]),
    )
    lines = [*map(line, keys), *(line(key=f"{k}:ttft", **ttft) for k in keys), *(line(key=f"{k}:few") for k in keys)]
    pairs = peers.paired(lines, found)
    assert [(c.tool, c.figure) for c in peers.compared(pairs)] == [("one", "tpot"), ("one", "ttft"), ("two", "tpot")]
    (closer,) = peers.closer(pairs)  # TTFT is not closer, and Tool Two answered too few rows
    assert (closer.tool, closer.figure, closer.rows) == ("one", "tpot", "b200, openai/gpt-oss-120b, vllm")
    text = report.peers_section(found, pairs)
    assert "| Tool One | TPOT | b200, openai/gpt-oss-120b, vllm | 5 | 1 | **2.0 %** / 10.0 % |" in text
    assert "- Tool Three: takes no users" in text
    assert "these are closer than Assay: Tool One (TPOT), Tool Two (TPOT)." in text


def test_the_recorded_answers_belong_to_the_published_rows():
    """Else: ask the tools again about the rows that changed, or take the rows that are gone out of answers.csv."""
    lines = peers.published_lines()
    found = peers.read()
    pairs = peers.paired(lines, found)
    assert all(pairs[tool.slug] for tool in found.tools)
    assert {answer.tool for answer in found.answers} == {tool.slug for tool in found.tools}


def test_the_accuracy_page_shows_the_comparison_of_the_published_rows():
    found = peers.read()
    entries = peers.shown(found, peers.paired(peers.published_lines(), found))
    assert entries and list(stored.peers_on_the_same_rows(files.digest_of(peers.PUBLISHED))) == entries
