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
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, Final

from .. import facts, suite
from ..measure import Case, Skip, Timing, Work, summary
from ..spec import checked
from ..suite import Progress, Run
from .device import JaxDevice, Program

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
    from . import kinds, whole

    make = {**kinds.KINDS, **whole.KINDS}[kind]
    return list(make(kind, "full" if size == "custom" else size, device))


def plan(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases that `run` will try, in order."""
    wanted = checked(dict(spec))
    device = detect(wanted["max_bytes"])
    return [
        {"kind": kind, "key": dict(case.key), "estimated_s": COMPILE_S}
        for kind in suite.wanted_kinds(wanted)
        for case in cases_of(kind, wanted["suite"], device)
    ]


def run(spec: Mapping[str, Any], *, progress: Progress = lambda stage, done, total: True) -> dict[str, Any]:
    """Measures this machine with jax. Returns the same kind of document as suite.run."""
    start_s, started_at = time.monotonic(), datetime.now(timezone.utc)
    wanted = checked(dict(spec))
    device = detect(wanted["max_bytes"])
    state = Run(wanted, device, progress, estimated_rates(device), start_s, started_at)
    kinds = suite.wanted_kinds(wanted)
    cases = {kind: cases_of(kind, wanted["suite"], device) for kind in kinds}
    total = sum(map(len, cases.values()))
    for at, kind in enumerate(kinds):
        run_kind(state, cases[kind], total, state.stop_of_first_s(kinds[at:]))
    return state.document("jax", device_facts(device), versions(device.jax))


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
    samples = SAMPLES[state.spec["suite"]] if state.device.gpu else 5
    timing, output, text = time_program(state.device, samples, program, guess_s)
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


def time_program(device: JaxDevice, count: int, program: Program, guess_s: float) -> tuple[Timing, Any, str]:
    """The time of one call from `count` samples, an output, and the text of the compiled program."""
    jax, sets = device.jax, program.sets
    rounds = max(1, min(MAX_ROUNDS, round(LAUNCH_S / guess_s / len(sets))))
    compiled = looped(jax, program, rounds).lower(sets).compile()
    outs = jax.block_until_ready(compiled(sets))
    calls = rounds * len(sets)
    one_s = min(wall(jax, compiled, sets, 1) for _ in range(2))
    queued = max(1, min(64, round(SAMPLE_S / one_s)))
    samples: list[float] = []
    sensed: dict[str, float] = {}
    for _ in range(count + 1):
        samples.append(wall(jax, compiled, sets, queued))
    wall(jax, compiled, sets, queued, device.sensors, sensed)
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
    product = time_program(device, 2, Program(lambda a, b: a @ b, [(x, x)]), 1e-4)[0].median_s
    big = jax.numpy.ones((side * 8, side), jax.numpy.float32)
    copy = time_program(device, 2, Program(lambda a: a * 2, [(big,), (big + 1,)]), 1e-4)[0].median_s
    return 2 * side**3 / product, 2 * 32 * side**2 / copy
