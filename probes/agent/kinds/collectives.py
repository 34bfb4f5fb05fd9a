"""Collectives over the GPUs of one host, by message size: one process per GPU, a file store, and NCCL.

`bytes` is the minimum that each device must send (bus bytes), so that the rate compares with its link: all_reduce
2 (n-1)/n of the message, all_gather and all_to_all (n-1)/n, point_to_point all of it. The key has the message size.
The environment is passed on unchanged, including settings such as NCCL_NVLS_ENABLE.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ..axes import MIB
from ..measure import Case, Check, Device, Scalar, Skip, Timing, Work, summary

QUICK = (4096, MIB, 64 * MIB)
CPU = (4096, 65536, MIB)
FULL = tuple(4096 << (2 * power) for power in range(9))  # 4 KiB .. 256 MiB
SESSION_S = 120.0  # time limit of all measurements
EXIT_S = 10.0  # time for the processes to exit afterwards, before they are killed
STEP_S = 60.0  # NCCL timeout of one collective
POLL_S = 0.05
Job = dict[str, Any]
Answers = dict[str, dict[str, Any]]
Measure = Callable[[Any, Any, Job, Any, str], None]  # (torch, torch.distributed, job, device, folder)


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    sizes = (QUICK if suite == "quick" else FULL) if device.gpu else CPU
    backend, most = ("nccl", device.count) if device.streams else ("gloo", 2)
    counts = [count for count in (2, 4, 8) if count <= most] or [2]
    for count in counts[-1:] if suite == "quick" else counts:
        job = {"backend": backend, "count": count, "sizes": list(sizes), "graphs": suite != "quick"}
        if kind == "point_to_point" and count > 2:
            continue
        for mode in ("eager", "graph") if device.streams and job["graphs"] else ("eager",):
            for size in sizes:
                key: dict[str, Scalar] = {"dtype": "bf16", "bytes": size, "devices": count, "mode": mode}
                first = (mode, size) == ("eager", sizes[0])
                build = _builder(job, kind, mode, size, first)
                setup_s = 20.0 if first else 0.0  # measures the others too
                yield Case(kind, {**key, "backend": backend}, build, needs_bytes=8 * max(sizes), setup_s=setup_s)


def _builder(job: Job, kind: str, mode: str, size: int, first: bool) -> Callable[[Device], Work]:
    """All kinds, modes and sizes are measured in one session, since starting processes takes longer than measuring."""

    def build(device: Device) -> Work:
        session = ("collectives", job["count"], len(job["sizes"]))
        answer, timing = answered(device, session, partial(run_session, job), _name(kind, mode, size), first)
        limit = 1e-2 if kind == "all_reduce" else 0.0
        check = Check(answer["error"], limit, "float32" if limit else "exact")
        return Work([], bytes=bus_bytes(kind, size, job["count"]), check=lambda: check, timing=timing)

    return build


def answered(
    device: Device, session: tuple[Any, ...], run: Callable[[], tuple[Answers, str]], name: str, first: bool
) -> tuple[dict[str, Any], Timing]:
    """One answer of a session of all devices, which the first case runs; Skip: there is none."""
    if device.gpu and device.count < 2:
        raise Skip("one device only")
    if session not in device.kept:
        if not first:
            raise Skip("time budget")
        device.release()
        device.kept[session] = run()
    answers, reason = device.kept[session]
    answer = answers.get(name)
    if answer is None:
        raise Skip(reason)
    return answer, Timing(answer["median_s"], answer["p10_s"], answer["p90_s"], answer["n"])


def _name(kind: str, mode: str, size: int) -> str:
    return f"{kind} {mode} {size}"


def bus_bytes(kind: str, size: int, count: int) -> int:
    """The minimum bytes that each of `count` devices sends for a message of `size` bytes."""
    share = {"all_reduce": 2 * (count - 1), "point_to_point": count}.get(kind, count - 1)
    return size * share // count


def run_session(job: Job, measure: Measure | None = None) -> tuple[Answers, str]:
    """Starts one process per device and waits. Returns the answers, and the reason if some are missing.

    Each process calls `measure`, by default that of collectives. Answers are written one by one, so that a later hang
    loses none of them.
    """
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        spawn = multiprocessing.get_context("spawn")
        processes = [
            spawn.Process(target=member, args=(job, rank, folder, measure or _answer), daemon=True)
            for rank in range(job["count"])
        ]
        for process in processes:
            process.start()
        _end(processes, Path(folder, "done"))
        answers: Answers = {}
        if (written := Path(folder, "answers.json")).exists():
            answers = json.loads(written.read_text())
        reasons = [file.read_text() for file in sorted(Path(folder).glob("refusal-*"))]
        return answers, reasons[0] if reasons else f"no answer within {SESSION_S:.0f} s"


def _end(processes: Sequence[Any], done: Path) -> None:
    """Waits for the processes, and kills those that hang."""
    stop_s = time.monotonic() + SESSION_S
    while time.monotonic() < stop_s and not done.exists() and all(process.is_alive() for process in processes):
        time.sleep(POLL_S)
    stop_s = time.monotonic() + EXIT_S
    for process in processes:
        process.join(max(0.1, stop_s - time.monotonic()))
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join(10)


def member(job: Job, rank: int, folder: str, measure: Measure) -> None:
    """Runs in each process: joins the group and measures."""
    import torch

    distributed: Any = import_module("torch.distributed")
    try:
        where = torch.device("cuda", rank) if job["backend"] == "nccl" else torch.device("cpu")
        if where.type == "cuda":
            torch.cuda.set_device(where)
        store = distributed.FileStore(os.path.join(folder, "store"), job["count"])
        limit = timedelta(seconds=STEP_S)
        distributed.init_process_group(job["backend"], store=store, rank=rank, world_size=job["count"], timeout=limit)
        measure(torch, distributed, job, where, folder)
        Path(folder, "done").touch()
        distributed.barrier()
        distributed.destroy_process_group()
    except (RuntimeError, ValueError, OSError, AssertionError, AttributeError) as error:
        Path(folder, f"refusal-{rank}").write_text(f"{type(error).__name__}: {str(error).splitlines()[0]}"[:250])
    os._exit(0)  # skips destructors, since that of a communicator can hang


def _answer(torch: Any, distributed: Any, job: Job, where: Any, folder: str) -> None:
    """Measures everything eagerly, then in graphs. Rank 0 writes the answers after each."""
    answers: Answers = {}
    for mode in ("eager", "graph") if where.type == "cuda" and job["graphs"] else ("eager",):
        for kind in OPERATIONS:
            if kind == "point_to_point" and job["count"] > 2:
                continue
            for size in job["sizes"]:
                answers[_name(kind, mode, size)] = measured(torch, distributed, kind, size, where, mode)
                keep(distributed, answers, folder)


def keep(distributed: Any, answers: Answers, folder: str) -> None:
    """Writes what was measured so far, if this is rank 0."""
    if distributed.get_rank() == 0:
        Path(folder, "writing").write_text(json.dumps(answers))
        os.replace(os.path.join(folder, "writing"), os.path.join(folder, "answers.json"))


def measured(torch: Any, distributed: Any, kind: str, size: int, where: Any, mode: str) -> dict[str, Any]:
    rank, count = distributed.get_rank(), distributed.get_world_size()
    call, check = OPERATIONS[kind](torch, distributed, size, where, rank, count)
    samples = _samples(torch, distributed, call, where, mode)
    error = torch.tensor([check()], device=where, dtype=torch.float32)
    distributed.all_reduce(error, op=distributed.ReduceOp.MAX)
    # A collective takes as long as its slowest rank.
    times = torch.tensor(samples, device=where, dtype=torch.float32)
    distributed.all_reduce(times, op=distributed.ReduceOp.MAX)
    timing = summary(times.tolist())
    times_s = {"median_s": timing.median_s, "p10_s": timing.p10_s, "p90_s": timing.p90_s, "n": timing.n}
    return {**times_s, "error": float(error)}


def _samples(torch: Any, distributed: Any, call: Callable[[], Any], where: Any, mode: str) -> list[float]:
    """The time of one call in each batch, in seconds. Every rank makes the same number of calls."""
    gpu = where.type == "cuda"
    for _ in range(5):
        call()
    one_s = torch.tensor([_batch(torch, call, gpu, 3)], device=where)
    distributed.all_reduce(one_s, op=distributed.ReduceOp.MAX)
    each = max(1, min(100, int(2e-3 / max(float(one_s), 1e-6))))
    run = _graph(torch, call, each) if mode == "graph" else None
    samples = []
    for _ in range(20 if gpu else 5):
        distributed.barrier()
        samples.append(_batch(torch, run, gpu, 1) / each if run else _batch(torch, call, gpu, each))
    return samples


def _graph(torch: Any, call: Callable[[], Any], each: int) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(each):
            call()
    graph.replay()
    torch.cuda.synchronize()
    replay: Callable[[], Any] = graph.replay
    return replay


def _batch(torch: Any, call: Callable[[], Any], gpu: bool, times: int) -> float:
    if not gpu:
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(times):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / times


def _message(torch: Any, size: int, where: Any, rank: int) -> Any:
    """Random values that depend on the rank and that other ranks can regenerate."""
    generator = torch.Generator(device=where).manual_seed(rank + 1)
    return torch.randn(size // 2, generator=generator, device=where).to(torch.bfloat16)


def _wrong(out: Any, expected: Any) -> float:
    return float((out != expected).float().mean())


def _all_reduce(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    """In place. With NCCL the mean is timed, since repeated sums overflow; the sum is checked."""
    x = _message(torch, size, where, rank)
    operation = distributed.ReduceOp.AVG if where.type == "cuda" else distributed.ReduceOp.MAX

    def check() -> float:
        mine = _message(torch, size, where, rank)
        distributed.all_reduce(mine)
        expected = sum(_message(torch, size, where, other).float() for other in range(count))
        return float(torch.linalg.vector_norm(mine.float() - expected) / torch.linalg.vector_norm(expected))

    return lambda: distributed.all_reduce(x, op=operation), check


def _all_gather(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    x = _message(torch, size // count, where, rank)
    out = torch.full((len(x) * count,), float("nan"), device=where, dtype=x.dtype)

    def check() -> float:
        expected = torch.cat([_message(torch, size // count, where, other) for other in range(count)])
        return _wrong(out, expected)

    return lambda: distributed.all_gather_into_tensor(out, x), check


def _all_to_all(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    x = _message(torch, size, where, rank)
    out = torch.full_like(x, float("nan"))
    part = len(x) // count

    def check() -> float:
        sent = [_message(torch, size, where, other)[rank * part : (rank + 1) * part] for other in range(count)]
        return _wrong(out, torch.cat(sent))

    return lambda: distributed.all_to_all_single(out, x), check


def _point_to_point(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    """The first device sends to the second."""
    x = (
        _message(torch, size, where, 0)
        if rank == 0
        else torch.full((size // 2,), float("nan"), device=where, dtype=torch.bfloat16)
    )

    def call() -> Any:
        return distributed.send(x, 1) if rank == 0 else distributed.recv(x, 0)

    return call, lambda: _wrong(x, _message(torch, size, where, 0))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
