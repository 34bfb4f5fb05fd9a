"""The blocks of a page, written from the stored answers."""

from pathlib import Path
from typing import Any

import yaml

from tests.examples import BLOCK, NAMED, ROOT, ask_of, facts

Json = dict[str, Any]
DEFAULT_TOP = 5


def rendered(text: str, stored: dict[str, Json]) -> str:
    """The page with each of its blocks written anew."""

    def block(match: Any) -> str:
        kind, body = match[1], match[2]
        asked = body.strip() if kind in NAMED else yaml.safe_load(body)
        return f"<!-- {kind}{body}-->\n{WRITERS[kind](asked, stored)}\n<!-- end -->"

    return BLOCK.sub(block, text)


def answers(items: list[Json], stored: dict[str, Json]) -> str:
    """A row per question: the first choice and its figures, and the commands below."""
    found = [(item, ask_of(item), stored[ask_of(item).key]) for item in items]
    trains = all(answer["kind"] in ("training", "finetuning") for _, _, answer in found)
    head = ["question", "first choice", "cost", *(["days"] if trains else ["p95 TTFT", "p95 TPOT"]), "probability"]
    rows = []
    for item, ask, answer in found:
        best = answer["first"]
        label = item.get("says", f"`{ask.name}`")
        if best is None:
            rows.append([label, "nothing qualifies", *["-"] * (len(head) - 2)])
            continue
        speed = [amount(best["days"])] if trains else [ms(best["ttft_ms"]), ms(best["tpot_ms"])]
        rows.append([label, f"{best['label']}{at(best)}", cost(best), *speed, chance(best["slo_probability"])])
    commands = "\n".join(ask.command for _, ask, _ in found)
    return f"\n{table(head, rows)}\n\n```sh\n{commands}\n```\n\n{dated(answer for _, _, answer in found)}\n"


def ranking(item: Json, stored: dict[str, Json]) -> str:
    answer = stored[ask_of(item).key]
    options = answer["options"][: item.get("top", DEFAULT_TOP)]
    head = ["rank", "option", "cost", "p95 TTFT", "p95 TPOT", "probability of meeting the limits"]
    rows = [
        [str(o["rank"]), f"{o['label']}{at(o)}", cost(o), ms(o["ttft_ms"]), ms(o["tpot_ms"]), chance(o["probability"])]
        for o in options
    ]
    return f"\n{table(head, rows)}\n\n{dated([answer])}\n"


def figures(item: Json, stored: dict[str, Json]) -> str:
    """Named values of one answer."""
    found = stored[ask_of(item).key]["figures"]
    rows = [[label, amount(found[str(path)])] for label, path in item["rows"].items()]
    return f"\n{table(['figure', 'value'], rows)}\n\n```sh\n{ask_of(item).command}\n```\n"


def file(name: str, stored: dict[str, Json]) -> str:
    path = Path(name)
    return f"\n```{path.suffix.lstrip('.')}\n{(ROOT / path).read_text().rstrip()}\n```\n"


def output(item: Json, stored: dict[str, Json]) -> str:
    """The first lines that the command prints."""
    lines = stored[item["command"]]["text"].splitlines()[item.get("from", 1) - 1 :][: item.get("lines")]
    return "\n```text\n" + "\n".join(lines) + "\n```\n"


def inputs(section: str, stored: dict[str, Json]) -> str:
    """Every key of a section of the workload file."""
    from tests.examples import inputs  # needs Django

    return f"\n{table(['key', 'type', 'unit', 'default', 'meaning', 'example'], inputs.inputs(section))}\n"


def assumptions(_: str, stored: dict[str, Json]) -> str:
    """Every assumption of the catalog that `tco` overrides."""
    from tests.examples import inputs

    return f"\n{table(['key', 'unit', 'default', 'range', 'meaning', 'as of'], inputs.assumptions())}\n"


def known(_: str, stored: dict[str, Json]) -> str:
    return f"\n{table(['how an accelerator is known', 'accelerators'], facts.known())}\n"


def held_out(_: str, stored: dict[str, Json]) -> str:
    return f"\n{table(['not seen by the fit', *facts.FIGURES.values()], facts.held_out())}\n"


def price_ages(_: str, stored: dict[str, Json]) -> str:
    return f"\n{table(['origin', 'prices', 'oldest', 'newest', 'over 90 days old'], facts.price_ages())}\n"


def deciding_ages(_: str, stored: dict[str, Json]) -> str:
    head = ["question", "paid as", "seller", "price of", "days old when asked", "weakness"]
    return f"\n{table(head, facts.deciding_ages())}\n"


WRITERS: dict[str, Any] = {"answers": answers, "ranking": ranking, "figures": figures, "file": file, "output": output,
                           "inputs": inputs, "assumptions": assumptions,
                           "known": known, "held-out": held_out, "price-ages": price_ages,
                           "deciding-ages": deciding_ages}  # fmt: skip


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def dated(answers: Any) -> str:
    days = sorted({answer["prices_as_of"] for answer in answers})
    return f"Prices as of {' and '.join(days)}."


def at(option: Json) -> str:
    seller = option["provider"]
    return f" at {seller}" if seller and seller not in ("own", "owned") and "API" not in option["label"] else ""


def cost(option: Json) -> str:
    if option.get("usd_per_run") is not None:
        return f"${amount(option['usd_per_run'])} a run"
    return f"${amount(option['usd_per_month'])} a month"


def ms(value: float | None) -> str:
    return "-" if value is None else f"{amount(value)} ms"


def chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def amount(value: Any) -> str:
    """At most three significant digits below 1,000, whole above."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
