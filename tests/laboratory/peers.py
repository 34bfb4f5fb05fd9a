"""Compares other tools with this engine on the same measured rows, from the answers recorded in fixtures/peers.

`manage.py shell -c "from tests.laboratory import peers; peers.write_published()"` makes the page's comparison anew.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from advisor.fidelity.scores.scorecard import Line, kind_of, line_of
from advisor.fidelity.scores.statistics import Point, summary
from advisor.fidelity.stored import COMPARED
from catalog.loading import scored as files
from catalog.models import MeasuredFigure, ScoredRow
from catalog.shipped import FIXTURES

DIRECTORY, PUBLISHED = FIXTURES / "peers", FIXTURES / "fidelity"
ANSWERS, TOOLS = "answers.csv", "tools.yaml"
COLUMNS = ("key", "question", "tool", "predicted", "note")
FIGURES: Mapping[str, str] = {"tpot": "TPOT", "ttft": "TTFT", "throughput": "output tokens/s"}
MIN_ROWS = 5  # a smaller group of rows is not compared by itself
SHOWN = ("median_ape", "group_median_ape", "p90_ape", "bias")  # on the accuracy page
CLOSER_BY = 0.02  # of error: smaller differences count as equal


class PeersError(ValueError):
    """The recorded answers are not valid, or belong to rows that no longer exist or have changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool that was asked, and how."""

    slug: str
    name: str
    method: str
    data: str  # what its answers rest on, and whether that includes these rows


@dataclass(frozen=True, kw_only=True, slots=True)
class NotAsked:
    """A tool that could not be asked, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A tool's answer to one row, in the row's unit; `predicted` is None if there is none, and `note` says why."""

    key: str
    question: str
    tool: str
    predicted: float | None
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Everything recorded about the other tools."""

    asked_on: str
    tools: tuple[Tool, ...]
    not_asked: tuple[NotAsked, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A scored row with a tool's answer to it."""

    line: Line
    peer: Point


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The errors of a tool and of this engine on the same rows: the figures of `statistics.summary`."""

    tool: str
    figure: str  # a key of FIGURES
    rows: str  # which rows: a chip, or chip, model, framework; empty: all that the tool answered
    groups: int  # (chip, model, source) groups
    peer: Mapping[str, Any]
    ours: Mapping[str, Any]

    @property
    def peer_is_closer(self) -> bool:
        """Whether the tool's median error over groups is lower, by more than CLOSER_BY."""
        return float(self.ours["group_median_ape"] - self.peer["group_median_ape"]) > CLOSER_BY


# --- recorded answers -------------------------------------------------------------------------------------------


def read(directory: Path = DIRECTORY) -> Recorded:
    """The tools and their answers. Raises PeersError."""
    path = directory / TOOLS
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    tools = tuple(Tool(**_text(given, Tool, path)) for given in document["tools"])
    return Recorded(
        asked_on=document["asked_on"].isoformat(),
        tools=tools,
        not_asked=tuple(NotAsked(**_text(given, NotAsked, path)) for given in document["not_asked"]),
        answers=tuple(_answers(directory / ANSWERS, {tool.slug for tool in tools})),
    )


def _text(given: Mapping[str, str], kind: type, path: Path) -> dict[str, str]:
    expected = {field.name for field in fields(kind)}
    if set(given) != expected:
        raise PeersError(f"{path.name}: an entry has the keys {sorted(given)} instead of {sorted(expected)}")
    return dict(given)


def _answers(path: Path, tools: set[str]) -> Iterable[Answer]:
    """The lines of the file; a line with a blank key belongs to the row above it."""
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise PeersError(f"{path.name}: the columns must be {', '.join(COLUMNS)}")
        key, question, seen = "", "", set()
        for line in reader:
            if line["key"]:
                key, question = line["key"], line["question"]
            where = f"{path.name}, line {reader.line_num}"
            if line["tool"] not in tools:
                raise PeersError(f"{where}: {line['tool']!r} is not in {TOOLS}")
            if (key, line["tool"]) in seen:
                raise PeersError(f"{where}: a second answer of {line['tool']} to {key}")
            if not line["predicted"] and not line["note"]:
                raise PeersError(f"{where}: neither an answer nor the reason for having none")
            seen.add((key, line["tool"]))
            predicted = float(line["predicted"]) if line["predicted"] else None
            yield Answer(key=key, question=question, tool=line["tool"], predicted=predicted, note=line["note"])


def question_of(row: MeasuredFigure) -> str:
    """What was asked about a row, as text: an answer is valid only as long as this does not change."""
    lengths = f"{_short(row.isl)}/{_short(row.osl)}"
    users = "" if row.concurrency is None else f" c{_short(row.concurrency)}"
    return (
        f"{row.model} {row.weights_dtype} {row.framework} {row.chips}x {row.accelerator} {row.layout} {lengths}{users}"
    )


def _short(value: float) -> str:
    """Rounded like the figures of the scorecard files, so that a row reads the same from both."""
    return f"{float(f'{value:.4g}'):g}"


# --- the join ---------------------------------------------------------------------------------------------------


def paired(lines: Iterable[Line], recorded: Recorded) -> dict[str, list[Pair]]:
    """The answers of each tool beside the scored rows; disputed rows are left out.

    Raises PeersError if a row no longer exists or is another question now: then the tools must be asked again.
    """
    known = {line.row.key: line for line in lines}
    keys = {answer.key: answer.question for answer in recorded.answers}
    if missing := sorted(set(keys) - set(known)):
        raise PeersError(f"{ANSWERS}: {len(missing)} rows are no longer scored, such as {missing[0]}")
    if changed := sorted(key for key, question in keys.items() if question_of(known[key].row) != question):
        now = question_of(known[changed[0]].row)
        raise PeersError(
            f"{ANSWERS}: {len(changed)} rows have changed: {changed[0]} was {keys[changed[0]]!r} and is {now!r}"
        )
    pairs: dict[str, list[Pair]] = {tool.slug: [] for tool in recorded.tools}
    for answer in recorded.answers:
        line = known[answer.key]
        if line.row.circumstance != "disputed" and answer.predicted is not None:
            pairs[answer.tool].append(Pair(line=line, peer=_point(line, answer.predicted)))
    return pairs


def _point(line: Line, predicted: float) -> Point:
    ratio = predicted / line.point.measured
    return Point(
        ape=abs(ratio - 1.0),
        ratio=ratio,
        inside=None,
        group=line.point.group,
        chip=line.point.chip,
        pair=None,
        measured=line.point.measured,
        predicted=predicted,
    )


# --- scores -----------------------------------------------------------------------------------------------------


def compared(pairs: Mapping[str, Sequence[Pair]], *columns: str) -> list[Comparison]:
    """One comparison for each tool, figure and value of the columns of ScoredRow, in the tools' order.

    Groups by columns with fewer than MIN_ROWS rows are left out.
    """
    return [
        _compared(tool, figure, ", ".join(values), members)
        for tool, answered in pairs.items()
        for (figure, *values), members in _grouped(answered, columns)
        if not columns or len(members) >= MIN_ROWS
    ]


def _grouped(answered: Sequence[Pair], columns: Sequence[str]) -> Iterable[tuple[tuple[str, ...], list[Pair]]]:
    members: defaultdict[tuple[str, ...], list[Pair]] = defaultdict(list)
    for pair in answered:
        row = pair.line.row
        members[(kind_of(row), *(getattr(row, column) for column in columns))].append(pair)
    order = list(FIGURES)
    return sorted(members.items(), key=lambda item: (order.index(item[0][0]), item[0][1:]))


def _compared(tool: str, figure: str, rows: str, members: Sequence[Pair]) -> Comparison:
    return Comparison(
        tool=tool,
        figure=figure,
        rows=rows,
        groups=len({pair.peer.group for pair in members}),
        peer=summary([pair.peer for pair in members]),
        ours=summary([pair.line.point for pair in members]),
    )


def closer(pairs: Mapping[str, Sequence[Pair]]) -> list[Comparison]:
    """The deployments (chip, model, framework) on which a tool's error is lower, largest difference first."""
    found = [c for c in compared(pairs, "accelerator", "model", "framework") if c.peer_is_closer]
    return sorted(found, key=lambda c: c.peer["group_median_ape"] - c.ours["group_median_ape"])


def unanswered(recorded: Recorded) -> dict[str, dict[str, int]]:
    """Tool -> reason -> number of rows without an answer, most frequent first."""
    counts: dict[str, dict[str, int]] = {tool.slug: {} for tool in recorded.tools}
    for answer in recorded.answers:
        if answer.predicted is None:
            of_tool = counts[answer.tool]
            of_tool[answer.note] = of_tool.get(answer.note, 0) + 1
    return {tool: dict(sorted(reasons.items(), key=lambda item: -item[1])) for tool, reasons in counts.items()}


def shown(recorded: Recorded, pairs: Mapping[str, Sequence[Pair]]) -> list[dict[str, Any]]:
    """What the accuracy page shows: for each tool and figure, its errors and Assay's on the same rows."""
    names = {tool.slug: tool.name for tool in recorded.tools}
    return [
        {
            "tool": names[c.tool],
            "figure": FIGURES[c.figure],
            "n": c.peer["n"],
            "groups": c.groups,
            "asked_on": recorded.asked_on,
            "errors": {key: [c.peer[key], c.ours[key]] for key in SHOWN},
        }
        for c in compared(pairs)
    ]


def write(digest: str, entries: Sequence[Mapping[str, Any]], path: Path = COMPARED) -> None:
    """digest: of the scorecard files that these errors belong to."""
    document = {"scorecard": digest, "entries": [dict(entry) for entry in entries]}
    head = "# Written by `fidelity --write-docs`; do not edit.\n"
    path.write_text(head + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")


def published_lines(directory: Path = PUBLISHED) -> list[Line]:
    """The rows of the published scorecard, from its files."""
    rows = [row for path in directory.glob("*.csv") if path.name != files.SOURCES for row in files.scored_rows(path)]
    known = {field.name for field in ScoredRow._meta.get_fields()}
    return [line_of(ScoredRow(**{key: value for key, value in row.items() if key in known})) for row in rows]


def write_published() -> None:
    """The comparison for the published scorecard, from its files and the recorded answers."""
    recorded = read()
    write(files.digest_of(PUBLISHED), shown(recorded, paired(published_lines(), recorded)))
