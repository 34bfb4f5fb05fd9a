"""The documentation page of the questions: each with source, command, and expected range with its arithmetic."""

import json
from typing import Any

from tests.questions import evaluate, questions

INTRO = """# Forty checked questions

Does Assay give the answers an expert expects? These forty questions are asked in every test run
(`pytest tests/questions`). For each one, this page states the expected range and the arithmetic behind it. An answer
outside its range fails the tests. The ranges come from arithmetic and published measurements, not from Assay's own
answers. Costs are only compared as ratios, because prices change.

The first twenty are questions that buyers of hardware ask. The other twenty come from public discussions and
measurements, which are linked.
"""
TITLES = {"buyer": "Questions of buyers", "public": "Questions from public discussions"}


def page() -> str:
    parts, known = [INTRO], questions()
    for origin, title in TITLES.items():
        parts.append(f"## {title}\n")
        chosen = [q for q in known if q["from"] == origin]
        parts += [section(number, q) for number, q in enumerate(chosen, start=1 if origin == "buyer" else 21)]
    return "\n".join(parts)


def section(number: int, q: dict[str, Any]) -> str:
    lines = [f"### {number}. {q['question']}", "", q["answer"].strip(), ""]
    lines += [f"- {expected(e)}" for e in q["expect"]]
    if "source" in q:
        lines.append(f"- Source: [{q['source']['title']}]({q['source']['url']})")
    lines.append("")
    for name, ask in q["asks"].items():
        kind, body = next(iter(ask.items()))
        label = f"`{name}`" if len(q["asks"]) > 1 else "Asked"
        lines += [f"{label}: `{kind}` with", "", f"    {json.dumps(body)}", ""]
    return "\n".join(lines)


def expected(e: dict[str, Any]) -> str:
    """One expectation in words."""
    if "refused" in e:
        return f"{e['what']}: refused at `{e['refused']}`, naming `{e['names']}`."
    if "one_of" in e:
        return f"{e['what']}: {' or '.join(f'`{value}`' for value in e['one_of'])}. {e['because']}"
    if "not_in" in e:
        return f"{e['what']}: none of {', '.join(f'`{value}`' for value in e['not_in'])}. {e['because']}"
    low, high = bounds(e)
    expectation = f"{e['what']}: {number(low)} to {number(high)}{unit(e)}."
    return f"{expectation} `{e['arithmetic']}` = {number(base(e))}{unit(e)}: {e['because']}"


def unit(e: dict[str, Any]) -> str:
    return f" {e['unit']}" if e.get("unit") else ""


def base(e: dict[str, Any]) -> float:
    return float(evaluate(e["arithmetic"], {}))


def bounds(e: dict[str, Any]) -> tuple[float, float]:
    """The expected range: the arithmetic times each of `times`."""
    low, high = e["times"]
    return base(e) * low, base(e) * high


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
