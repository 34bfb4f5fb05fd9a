"""Plans and runs the measurements of one machine. docs/reference/probes.md describes the result document.

    python -m probes.agent.suite --suite full --out FILE.json

A spec is data: {"suite": "quick"|"full"|"custom", "kinds": [...] or null, "max_s": seconds, "max_bytes": bytes}.
Nothing in it is executed, opened or imported. Cases that cannot be measured are listed with the reason.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from . import facts
from .axes import KINDS, SHARES, SUITE_S, SUITES, WARM_S, WINDOW_S
from .measure import Case, Check, Device, Skip, Timing, Work, measure, time_work
from .spec import AGENT_VERSION, SCHEMA, SpecError, checked, spec_hash
from .spec import SUITE_VERSION as SUITE_VERSION

# The module of each kind. Every module has cases(kind, suite, device).
MODULES = {
    "known_answer": "answers", "launch": "launch", "host_copy": "launch",
    "memory_read": "memory", "memory_write": "memory", "memory_copy": "memory", "memory_strided": "memory",
    "memory_gather": "memory", "l2_read": "memory", "gemm": "gemm", "grouped_gemm": "experts",
    "attention_prefill": "attention", "attention_decode": "decode",
    "norm": "layers", "rotary": "layers", "activation": "layers", "softmax": "layers", "mlp": "layers",
    "block": "network", "decode_step": "network", "compile_gain": "network",
    "train_step": "training.step", "train_overlap": "training.overlap",
    "all_reduce": "collectives", "all_gather": "collectives", "all_to_all": "collectives",
    "point_to_point": "collectives",
}  # fmt: skip

ARITHMETIC = (
    "gemm",
    "grouped_gemm",
    "attention_prefill",
    "mlp",
    "block",
    "compile_gain",
    "train_step",
    "train_overlap",
)
Progress = Callable[[str, int, int], bool]


def wanted_kinds(spec: Mapping[str, Any]) -> list[str]:
    return [kind for kind in KINDS if spec["kinds"] is None or kind in spec["kinds"]]


def cases_of(kind: str, suite: str, device: Device) -> list[Case]:
    module = importlib.import_module(f"{__package__}.kinds.{MODULES[kind]}")
    return list(module.cases(kind, "full" if suite == "custom" else suite, device))


def plan(spec: Mapping[str, Any], device: Device | None = None) -> list[dict[str, Any]]:
    """The cases that `run` will try, in order: {"kind", "key", "estimated_s"}. It skips the last if time runs out."""
    spec = checked(dict(spec))
    device = device or facts.detect(spec["max_bytes"])
    case_s = WINDOW_S[spec["suite"]] + WARM_S[spec["suite"]]
    return [
        {"kind": kind, "key": dict(case.key), "estimated_s": round((case.window_s or case_s) + case.setup_s, 3)}
        for kind in wanted_kinds(spec)
        for case in cases_of(kind, spec["suite"], device)
    ]


@dataclass
class Run:
    """The state of one run, with torch or jax."""

    spec: dict[str, Any]
    device: Any
    progress: Progress
    rates: tuple[float, float]  # rough FLOP/s and B/s, to predict what is too slow
    start_s: float
    started_at: datetime
    results: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    cancelled: bool = False
    broken: str | None = None

    @property
    def stop_s(self) -> float:
        """When the run must end, as time.monotonic()."""
        most_s = SUITE_S[self.spec["suite"]]
        return self.start_s + min(self.spec["max_s"] or most_s, most_s)

    def stop_of_first_s(self, left: Sequence[str]) -> float:
        """When the first of the remaining kinds must stop: its share of the remaining time."""
        now_s = time.monotonic()
        return now_s + max(0.0, self.stop_s - now_s) * SHARES[left[0]] / sum(SHARES[kind] for kind in left)

    def skip(self, case: Case, reason: str) -> None:
        self.skipped.append({"kind": case.kind, "key": dict(case.key), "reason": reason[:300]})

    def document(self, library: str, device_facts: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
        """The result document."""
        return {
            "schema": SCHEMA,
            "agent_version": AGENT_VERSION,
            "suite": self.spec["suite"],
            "suite_version": SUITE_VERSION,
            "spec_hash": spec_hash(self.spec),
            "spec": self.spec,
            "backend": self.device.backend,
            "library": library,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - self.start_s, 3),
            "device": device_facts,
            "host": facts.host_facts(),
            "versions": versions,
            "results": self.results,
            "skipped": self.skipped,
        }


def run(spec: Mapping[str, Any], *, progress: Progress = lambda stage, done, total: True) -> dict[str, Any]:
    """Measures this machine and returns the result document.

    `progress(kind, done, total)` is called before every case; False cancels the rest.
    """
    start_s, started_at = time.monotonic(), datetime.now(timezone.utc)
    wanted = checked(dict(spec))
    device = facts.detect(wanted["max_bytes"])
    device_facts = facts.device_facts(device)  # first, because a failing kernel can make the device unusable
    state = Run(wanted, device, progress, _estimated_rates(device), start_s, started_at)
    kinds = wanted_kinds(wanted)
    cases = {kind: cases_of(kind, wanted["suite"], device) for kind in kinds}
    total = sum(map(len, cases.values()))
    for at, kind in enumerate(kinds):
        _run_kind(state, cases[kind], total, state.stop_of_first_s(kinds[at:]))
    return state.document("torch", device_facts, facts.versions(device.torch))


def _estimated_rates(device: Device) -> tuple[float, float]:
    """Rough FLOP/s and B/s of this device, to skip cases that would take minutes."""
    torch, side = device.torch, 512 if not device.gpu else 2048
    a, b = device.random(side, side), device.random(side, side)
    flops = Work([lambda: torch.mm(a, b)], capture=False)
    copies = Work([lambda: b.copy_(a)], capture=False)

    with device.stream():
        rates = [time_work(device, work, 0.01, 0.005).median_s for work in (flops, copies)]
    return 2 * side**3 / rates[0], 2 * 4 * side**2 / rates[1]


def _run_kind(state: Run, cases: Iterable[Case], total: int, stop_s: float) -> None:
    """Runs the cases of one kind. The first may use all the remaining time, so that every kind gets a row."""
    for at, case in enumerate(cases):
        done = len(state.results) + len(state.skipped)
        state.cancelled = state.cancelled or not state.progress(case.kind, done, total)
        if state.cancelled or state.broken:
            state.skip(case, state.broken or "cancelled")
            continue
        until_s = stop_s if at else state.stop_s
        # Cases without setup time cost nothing: they were measured together with another.
        if case.setup_s and time.monotonic() + case.setup_s > until_s:
            state.skip(case, "time budget")
        else:
            _run_case(state, case, until_s)


def _skip_reason(state: Run, case: Case, stop_s: float) -> str | None:
    """Why the case is not tried; None if it is."""
    free_bytes = state.device.free_bytes()
    if case.needs_bytes > free_bytes:
        return f"needs {case.needs_bytes / 2**30:.2f} GiB, {free_bytes / 2**30:.2f} GiB may be used"
    call_s = max(case.flops / state.rates[0], case.bytes / state.rates[1])
    if not state.device.gpu and 6 * call_s > max(stop_s - time.monotonic(), 0.0):
        return f"one call would take about {call_s:.2g} s on this device"
    return None


def _run_case(state: Run, case: Case, stop_s: float) -> None:
    if reason := _skip_reason(state, case, stop_s):
        return state.skip(case, reason)
    suite = state.spec["suite"]
    try:
        work, timing, check = measure(state.device, case, WINDOW_S[suite], WARM_S[suite], stop_s + 1.0)
        state.results.append(row(case, work, timing, check))
    except Skip as reason:
        state.skip(case, str(reason))
    except Exception as error:
        # Libraries and compilers raise many kinds of errors; each becomes a reason.
        state.skip(case, refusal(error))
        state.broken = _device_failure(state.device)
    if not state.broken and (len(state.results) % 16 == 0 or case.needs_bytes > state.device.memory_bytes // 8):
        state.device.release()


def _device_failure(device: Device) -> str | None:
    """Why nothing more can run; None if the device works. After an illegal access it fails until the process exits."""
    try:
        device.synchronize()
        device.release()
    except RuntimeError as error:
        return f"the device failed before: {refusal(error)}"
    return None


def refusal(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"


def row(case: Case, work: Work, timing: Timing, check: Check | None) -> dict[str, Any]:
    """One entry of `results`."""
    throttled, reasons = facts.reasons(timing.sensors.get("reasons"))
    notes = [text for text in (work.note, reasons) if text]
    times = {"median": timing.median_s, "p10": timing.p10_s, "p90": timing.p90_s}
    sensors = {name: timing.sensors.get(name) for name in ("power_w", "clock_hz", "temperature_c")}
    # Only rows that have them, so that servers of before accept the other kinds
    more: dict[str, Any] = {} if work.peak_bytes is None else {"peak_bytes": work.peak_bytes}
    if work.parts_s is not None:
        more["parts_s"] = {name: float(f"{value:.6g}") for name, value in work.parts_s.items()}
    return {
        "kind": case.kind,
        "key": dict(case.key),
        "path": work.path,
        "kernel": work.kernel,
        "time_s": {**{name: float(f"{value:.6g}") for name, value in times.items()}, "n": timing.n},
        "flops": work.flops,
        "bytes": work.bytes,
        "check": _check(check),
        **sensors,
        "throttled": throttled,
        "note": "; ".join(notes) or None,
        **more,
    }


def _check(check: Check | None) -> dict[str, Any] | None:
    if check is None:
        return None
    error = float(f"{min(check.error, 1e30):.4g}")  # JSON has no infinity
    return {"error": error, "limit": check.limit, "against": check.against, "ok": check.ok}


def table(document: Mapping[str, Any], peaks: Mapping[str, float]) -> Iterator[str]:
    """Lines with the best rate of each kind and dtype. `peaks`: datasheet rates, dtype -> FLOP/s, memory -> B/s."""
    best: dict[tuple[str, str], tuple[float, str, Mapping[str, Any]]] = {}
    for found in document["results"]:
        rate, unit = rate_of(found)
        name = (found["kind"], str(found["key"].get("dtype", found["key"].get("backend", ""))))
        if name not in best or rate > best[name][0]:
            best[name] = (rate, unit, found)
    counts = f"{len(document['results'])} measured, {len(document['skipped'])} skipped"
    yield f"{document['device']['name']}: {counts}, {document['duration_s']:.1f} s"
    for (kind, axis), (rate, unit, found) in best.items():
        peak = peaks.get("memory" if kind.startswith("memory_") else axis)
        share = f" {rate / peak:6.1%} of datasheet" if peak and unit != "calls/s" else ""
        yield f"{kind:18} {axis:10} {rate / 1e9:12.2f} G{unit}{share}  {_short(found['key'])}"
    wrong = [found for found in document["results"] if found["check"] and not found["check"]["ok"]]
    yield f"checks that failed: {len(wrong)}"
    yield from (f"  {found['kind']} {_short(found['key'])}: {found['check']}" for found in wrong[:20])


def rate_of(found: Mapping[str, Any]) -> tuple[float, str]:
    """The rate of an entry and its unit: FLOP/s for compute kinds, else B/s, else calls/s."""
    time_s = found["time_s"]["median"]
    arithmetic = found["kind"] in ARITHMETIC
    if found["flops"] and (arithmetic or not found["bytes"]):
        return found["flops"] / time_s, "FLOP/s"
    return (found["bytes"] / time_s, "B/s") if found["bytes"] else (1 / time_s, "calls/s")


def _short(key: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in key.items())


def _peaks(texts: Sequence[str]) -> dict[str, float]:
    return {name: float(value) for name, value in (text.split("=", 1) for text in texts)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m probes.agent.suite", description="Measures this machine.")
    parser.add_argument("--suite", choices=SUITES, default="quick")
    parser.add_argument("--kinds", help="comma-separated; default: all")
    parser.add_argument("--max-s", type=float)
    parser.add_argument("--max-bytes", type=int)
    parser.add_argument("--out", help="write the result document to this file")
    parser.add_argument("--dry-run", action="store_true", help="list what would run, with estimated seconds")
    parser.add_argument(
        "--peak",
        action="append",
        default=[],
        metavar="bf16=989e12",
        help="datasheet rate; also memory=4.8e12",
    )
    given = parser.parse_args(arguments)
    kinds = given.kinds.split(",") if given.kinds else None
    spec = {"suite": given.suite, "kinds": kinds, "max_s": given.max_s, "max_bytes": given.max_bytes}
    try:
        if given.dry_run:
            return _dry_run(spec)
        document = run(spec, progress=_to_stderr)
    except SpecError as error:
        parser.error(str(error))
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump(document, file, allow_nan=False, separators=(",", ":"))
    print("\n".join(table(document, _peaks(given.peak))))
    return 0


def _dry_run(spec: Mapping[str, Any]) -> int:
    steps = plan(spec)
    for step in steps:
        print(f"{step['kind']:18} {step['estimated_s']:6.2f} s  {_short(step['key'])}")
    print(f"{len(steps)} cases, about {sum(step['estimated_s'] for step in steps):.0f} s before any budget")
    return 0


def _to_stderr(stage: str, done: int, total: int) -> bool:
    print(f"\r{done}/{total} {stage:20}", end="", file=sys.stderr, flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
