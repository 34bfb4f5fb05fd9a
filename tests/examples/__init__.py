"""The shipped workloads and worked examples: `make examples` answers them anew and renders the figures on their pages.

A page holds blocks. A block starts with an HTML comment that says what is asked, and ends with `<!-- end -->`. What
stands between is written from `answers.json`, the answers of the last run. Nothing of a block is edited by hand.

    <!-- answers                      one row per question: first choice, cost, latencies, probability
    - {ask: support-chat}
    - {ask: support-chat, set: [slo.tpot_ms_p95=20], says: "At most 20 ms per token"}
    -->
    <!-- ranking {ask: support-chat, top: 5} -->
    <!-- figures {ask: support-chat, rows: {Accelerators: recommendations[0].accelerator_count}} -->
    <!-- file fixtures/workloads/support-chat.yaml -->
    <!-- output {command: estimate --model ..., lines: 8} -->      the first lines that a command prints
    <!-- inputs traffic -->           every key of a section of the workload file
    <!-- assumptions -->              every assumption of the catalog that `tco` overrides
    <!-- known -->                    accelerators by how well they are known
    <!-- held-out -->                 errors on rows that the fit did not see, of the last scorecard
    <!-- price-ages -->               prices by origin and date, when the examples were last answered
    <!-- deciding-ages -->            the price that decides each shipped workload, and its age
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "fixtures" / "workloads"
STORE = Path(__file__).with_name("answers.json")
NAMED = (  # blocks asked for by a name alone
    *("file", "inputs", "assumptions", "known", "held-out", "price-ages", "deciding-ages"),
)
ASKED, RUN = ("answers", "ranking", "figures"), ("output",)
BLOCK = re.compile(rf"<!-- ({'|'.join(ASKED + RUN + NAMED)})\b(.*?)-->\n(.*?)<!-- end -->", flags=re.DOTALL)
Json = dict[str, Any]


@dataclass(frozen=True, order=True)
class Ask:
    """A shipped workload with some values changed, as `advise --set` changes them."""

    name: str
    changes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return " ".join([self.name, *self.changes])

    @property
    def command(self) -> str:
        changed = "".join(f" --set {shlex.quote(change)}" for change in self.changes)
        return f"manage.py advise fixtures/workloads/{self.name}.yaml{changed}"


def ask_of(item: Json) -> Ask:
    return Ask(item["ask"], tuple(item.get("set", ())))


def pages() -> list[Path]:
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def blocks(page: Path) -> Iterator[tuple[str, Any]]:
    """(kind, what is asked) of each block on a page."""
    for kind, body, _ in BLOCK.findall(page.read_text()):
        yield kind, body.strip() if kind in NAMED else yaml.safe_load(body)


def asks() -> dict[Ask, dict[str, None]]:
    """Every question to answer, with the paths that pages read from its answer."""
    found: dict[Ask, dict[str, None]] = {Ask(file.stem): {} for file in sorted(WORKLOADS.glob("*.yaml"))}
    for page in pages():
        for kind, body in blocks(page):
            for item in listed(body) if kind in ASKED else []:
                found.setdefault(ask_of(item), {}).update(dict.fromkeys(map(str, item.get("rows", {}).values())))
    return found


def commands() -> list[str]:
    """Every command whose output a page shows."""
    found = [blocks(page) for page in pages()]
    return sorted({item["command"] for each in found for kind, body in each if kind in RUN for item in listed(body)})


def listed(body: Any) -> list[Json]:
    return body if isinstance(body, list) else [body]


def stored() -> dict[str, Json]:
    """What the last run answered, by the key of the question or by the command."""
    return dict(json.loads(STORE.read_text())["answers"]) if STORE.exists() else {}
