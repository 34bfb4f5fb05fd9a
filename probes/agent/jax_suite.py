"""The suite in jax, for TPUs and for GPUs through XLA. Same kinds and result format as with torch.

A sample is one compiled program that calls the operator in a loop, over operands that together exceed the caches. An
optimization barrier orders the calls, and every output is returned, so that XLA cannot hoist or drop any call. Host
dispatch time is not included.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, Final

from probes.agent import facts, suite
from probes.agent.axes import SHARES, SUITE_S
from probes.agent.jax_device import JaxDevice, Program
from probes.agent.measure import Case, Skip, Timing, Work, summary
from probes.agent.spec import AGENT_VERSION, SCHEMA, spec_hash
from probes.agent.spec import checked as checked_spec

LAUNCH_S: Final = 4e-3  # target duration of one program, from a rough estimate of the rates
SAMPLE_S: Final = 20e-3  # target duration of one sample: several programs, one wait
SAMPLES: Final = {"quick": 7, "full": 15, "custom": 15}
MAX_ROUNDS: Final = 4096
COMPILE_S: Final = 1.5  # assumed compile time per case, for plans


# --- the device -------------------------------------------------------------------------------------------------


def detect(max_bytes: int | None = None) -> JaxDevice:
    """The device that jax uses. `max_bytes` limits the memory that the probe uses."""
    import jax

    device = jax.local_devices()[0]
    version = str(getattr(device.client, "platform_version", "")).lower()
    backend = {"gpu": "rocm" if "rocm" in version else "cuda", "cpu": "cpu"}.get(device.platform, "xla")
    fraction = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75))
    memory = memory_of(device, backend, fraction)
    return JaxDevice(
        backend=backend,
        jax=jax,
        name=str(device.device_kind) if backend != "cpu" else facts.host_cpu(),
        memory_bytes=min(max_bytes or memory, memory // 4 if backend == "cpu" else memory),
        l2_bytes={"cuda": 64 << 20, "rocm": 256 << 20, "cpu": facts.host_cache_bytes()}.get(backend, 128 << 20),
        count=jax.local_device_count(),
        fraction=fraction,
        sensors=facts.sensors(SimpleNamespace()) if backend == "cuda" else None,
    )


def memory_of(device: Any, backend: str, fraction: float) -> int:
    """Device memory in bytes: from the driver, else the limit of XLA divided by its share."""
    if backend == "cpu":
        return facts.host_memory_bytes() or 4 << 30
    module = facts.nvml() if backend == "cuda" else None
    if module:
        return int(module.nvmlDeviceGetMemoryInfo(module.nvmlDeviceGetHandleByIndex(0)).total)
    limit = int((device.memory_stats() or {}).get("bytes_limit", 0))
    return int(limit / fraction) if backend in ("cuda", "rocm") else limit


def device_facts(device: JaxDevice) -> dict[str, Any]:
    """The `device` part of a result; unknown facts are null."""
    names = "multiprocessors compute_capability l2_bytes driver runtime ecc mig power_limit_w clock_max_hz"
    found: dict[str, Any] = dict.fromkeys([*names.split(), "memory_clock_max_hz", "uuid_hash"])
    first = device.jax.local_devices()[0]
    found |= {"name": device.name, "count": device.count, "links": []}
    found |= {"memory_bytes": memory_of(first, device.backend, device.fraction)}
    found["compute_capability"] = str(getattr(first, "compute_capability", "")) or None
    found["multiprocessors"] = getattr(first, "core_count", None) if device.gpu else os.cpu_count()
    if device.backend == "cuda":
        found |= facts.nvml_facts(SimpleNamespace())
    return found


def host_facts() -> dict[str, Any]:
    return facts.host_facts()


def versions(jax: Any) -> dict[str, str]:
    import jaxlib

    platform = str(jax.local_devices()[0].client.platform_version).splitlines()
    return {"jax": str(jax.__version__), "jaxlib": str(jaxlib.__version__), "xla": " ".join(platform)[:120]}


# --- plan and run -----------------------------------------------------------------------------------------------


def cases_of(kind: str, size: str, device: JaxDevice) -> list[Case]:
    from probes.agent import jax_kinds, jax_whole

    make = {**jax_kinds.KINDS, **jax_whole.KINDS}[kind]
    return list(make(kind, "full" if size == "custom" else size, device))


def plan(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases that `run` will try, in order."""
    checked = checked_spec(dict(spec))
    device = detect(checked["max_bytes"])
    return [
        {"kind": kind, "key": dict(case.key), "estimated_s": COMPILE_S}
        for kind in suite.wanted_kinds(checked)
        for case in cases_of(kind, checked["suite"], device)
    ]


@dataclass
class Run:
    """The state of one run."""

    device: JaxDevice
    samples: int
    progress: suite.Progress
    rates: tuple[float, float] = (1e12, 1e11)
    results: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def skip(self, case: Case, reason: str) -> None:
        self.skipped.append({"kind": case.kind, "key": dict(case.key), "reason": reason[:300]})


def run(spec: Mapping[str, Any], *, progress: suite.Progress = lambda stage, done, total: True) -> dict[str, Any]:
    """Measures this machine with jax. Returns the same kind of document as suite.run."""
    start_s, started_at = time.monotonic(), datetime.now(timezone.utc)
    checked = checked_spec(dict(spec))
    device = detect(checked["max_bytes"])
    end_s = start_s + min(checked["max_s"] or SUITE_S[checked["suite"]], SUITE_S[checked["suite"]])
    state = Run(device, SAMPLES[checked["suite"]] if device.gpu else 5, progress, estimated_rates(device))
    kinds = suite.wanted_kinds(checked)
    cases = {kind: cases_of(kind, checked["suite"], device) for kind in kinds}
    total = sum(map(len, cases.values()))
    for at, kind in enumerate(kinds):
        now_s, left = time.monotonic(), sum(SHARES[one] for one in kinds[at:])
        run_kind(state, cases[kind], total, now_s + max(0.0, end_s - now_s) * SHARES[kind] / left)
    return {
        "schema": SCHEMA,
        "agent_version": AGENT_VERSION,
        "suite": checked["suite"],
        "suite_version": suite.SUITE_VERSION,
        "spec_hash": spec_hash(checked),
        "spec": checked,
        "backend": device.backend,
        "library": "jax",
        "started_at": started_at.isoformat(timespec="seconds"),
        "duration_s": round(time.monotonic() - start_s, 3),
        "device": device_facts(device),
        "host": host_facts(),
        "versions": versions(device.jax),
        "results": state.results,
        "skipped": state.skipped,
    }


def run_kind(state: Run, cases: list[Case], total: int, stop_s: float) -> None:
    for case in cases:
        keep_going = state.progress(case.kind, len(state.results) + len(state.skipped), total)
        if not keep_going:
            state.skip(case, "cancelled")
        elif time.monotonic() > stop_s:
            state.skip(case, "time budget")
        else:
            run_case(state, case, stop_s)


def run_case(state: Run, case: Case, stop_s: float) -> None:
    free = int(state.device.memory_bytes * 0.8)
    if case.needs_bytes > free:
        return state.skip(case, f"needs {case.needs_bytes / 2**30:.2f} GiB, {free / 2**30:.2f} GiB may be used")
    guess_s = max(case.flops / state.rates[0], case.bytes / state.rates[1], 2e-6)
    if 6 * guess_s > max(stop_s - time.monotonic(), 0.0):
        return state.skip(case, f"one call would take about {guess_s:.2g} s on this device")
    try:
        state.results.append(measured(state, case, guess_s))
    except Skip as reason:
        state.skip(case, str(reason))
    except (RuntimeError, ValueError, TypeError, NotImplementedError, ImportError, AttributeError) as error:
        # XLA raises many errors for unsupported operations; each becomes a reason.
        state.skip(case, suite.refusal(error))


def measured(state: Run, case: Case, guess_s: float) -> dict[str, Any]:
    build: Any = case.build
    program: Program = build(state.device)
    if program.timing:
        work = Work([], case.flops or None, case.bytes or None, path="native", note=program.note)
        return suite.row(case, work, program.timing, program.check(None) if program.check else None)
    timing, output, text = time_program(state, program, guess_s)
    check = program.check(output) if program.check else None
    note = "; ".join(filter(None, [program.note, cache_note(state.device, case, len(program.sets))]))
    path, name = program.path(text), kernel_in(text)
    work = Work([], case.flops or None, case.bytes or None, path=path, note=note or None, kernel=name)
    return suite.row(case, work, timing, check)


def cache_note(device: JaxDevice, case: Case, sets: int) -> str | None:
    """A note if the operands fit in the last-level cache, so that the measurement is warm. Not for collectives."""
    exempt = case.kind in ("l2_read", "known_answer") or "devices" in case.key or not case.bytes
    return None if exempt or sets * case.bytes > device.l2_bytes else "operands fit in the last cache"


def kernel_in(text: str) -> str | None:
    """The library call in a compiled program, or `xla fusion` for XLA's own kernels."""
    calls = [name for name in re.findall(r'custom_call_target="([^"]+)"', text) if "AllocateBuffer" not in name]
    return calls[0] if calls else "xla fusion"


# --- timing -----------------------------------------------------------------------------------------------------


def looped(jax: Any, program: Program, rounds: int) -> Any:
    """A compiled program that calls the operator on every set, `rounds` times in sequence. Returns the last outputs."""
    wait = jax.lax.optimization_barrier

    def once(sets: Any, kept: list[Any]) -> list[Any]:
        outs, before = [], kept[-1]
        for given in sets:
            given, _ = wait((given, before))
            before = program.function(*given)
            outs.append(before)
        return outs

    def whole(sets: Any) -> Any:
        shapes = [jax.eval_shape(program.function, *given) for given in sets]
        empty = [jax.numpy.zeros(shape.shape, shape.dtype) for shape in shapes]
        return jax.lax.fori_loop(0, rounds, lambda _, kept: once(sets, kept), empty)

    return jax.jit(program.wrap(whole) if program.wrap else whole)


def time_program(state: Run, program: Program, guess_s: float) -> tuple[Timing, Any, str]:
    """The time of one call, an output, and the text of the compiled program."""
    jax, sets = state.device.jax, program.sets
    rounds = max(1, min(MAX_ROUNDS, round(LAUNCH_S / guess_s / len(sets))))
    compiled = looped(jax, program, rounds).lower(sets).compile()
    outs = jax.block_until_ready(compiled(sets))
    calls = rounds * len(sets)
    one_s = min(wall(jax, compiled, sets, 1) for _ in range(2))
    queued = max(1, min(64, round(SAMPLE_S / one_s)))
    samples: list[float] = []
    sensed: dict[str, float] = {}
    for _ in range(state.samples + 1):
        samples.append(wall(jax, compiled, sets, queued))
    wall(jax, compiled, sets, queued, state.device.sensors, sensed)
    timing = summary([sample / queued / calls for sample in samples[1:]], sensed)
    return timing, outs[0], compiled.as_text()


def wall(
    jax: Any, compiled: Any, sets: Any, queued: int, sensors: Any = None, sensed: dict[str, float] | None = None
) -> float:
    """Wall time of `queued` programs with one wait, in seconds. Reads `sensors` into `sensed` meanwhile."""
    start = time.perf_counter()
    outs = None
    for _ in range(queued):
        outs = compiled(sets)
    if sensors and sensed is not None:
        sensed.update(sensors())
    jax.block_until_ready(outs)
    return time.perf_counter() - start


def estimated_rates(device: JaxDevice) -> tuple[float, float]:
    """Rough FLOP/s and B/s of this device, to choose loop lengths."""
    jax, side = device.jax, 4096 if device.gpu else 512
    x = jax.numpy.ones((side, side), jax.numpy.bfloat16 if device.gpu else jax.numpy.float32)
    state = Run(device, 2, lambda stage, done, total: True)
    product = time_program(state, Program(lambda a, b: a @ b, [(x, x)]), 1e-4)[0].median_s
    big = jax.numpy.ones((side * 8, side), jax.numpy.float32)
    copy = time_program(state, Program(lambda a: a * 2, [(big,), (big + 1,)]), 1e-4)[0].median_s
    return 2 * side**3 / product, 2 * 32 * side**2 / copy
