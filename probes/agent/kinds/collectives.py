"""Collectives over the GPUs of one host, by size: one process for each, joined through a file, NCCL between them.

`bytes` are those that each device must send at the least (its bus bytes), so that the rate compares with its link:
all_reduce 2 (n-1)/n of the message, all_gather and all_to_all (n-1)/n, point_to_point all of it. The message's own
size is in the key. The environment is passed on as it is: settings such as NCCL_NVLS_ENABLE keep their meaning.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from ..axes import MIB
from ..measure import Case, Check, Device, Scalar, Skip, Timing, Work, summary

QUICK = (4096, MIB, 64 * MIB)
FULL = tuple(4096 << (2 * power) for power in range(9))  # 4 KiB .. 256 MiB
JOIN_S = 90.0  # To start every process, and to end them.
STEP_S = 60.0  # NCCL gives up a collective after this.
Answer = dict[str, Any]


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    sizes = QUICK if suite == "quick" else FULL
    backend, most = ("nccl", device.count) if device.streams else ("gloo", 2)
    counts = [count for count in (2, 4, 8) if count <= most] or [2]
    if kind == "point_to_point":
        counts = [2]
    if suite == "quick":
        counts = counts[-1:]
    # One meeting of the processes measures every size: starting them takes longer than measuring.
    for count in counts:
        meeting = Meeting(kind, backend, count, sizes)
        for size in sizes:
            key: dict[str, Scalar] = {"dtype": "bf16", "bytes": size, "devices": count, "backend": backend}
            yield Case(kind, key, meeting.answer(size), needs_bytes=4 * max(sizes), setup_s=30.0 / len(sizes))


class Meeting:
    """One start of the processes, whose answers serve a case for each size."""

    def __init__(self, kind: str, backend: str, count: int, sizes: Sequence[int]) -> None:
        self.job = {"kind": kind, "backend": backend, "count": count, "sizes": list(sizes)}
        self.answers: dict[int, Answer] | None = None
        self.refusal = ""

    def answer(self, size: int) -> Callable[[Device], Work]:
        return lambda device: self._work(device, size)

    def _work(self, device: Device, size: int) -> Work:
        if device.gpu and device.count < 2:
            raise Skip("one device only")
        if self.answers is None and not self.refusal:
            device.release()
            try:
                self.answers = meet(self.job)
            except Skip as reason:
                self.refusal = str(reason)
        if not self.answers or size not in self.answers:
            raise Skip(self.refusal or "no answer from the other processes")
        found = self.answers[size]
        timing = Timing(found["median_s"], found["p10_s"], found["p90_s"], found["n"])
        check = Check(found["error"], found["limit"])
        return Work(
            [],
            bytes=bus_bytes(str(self.job["kind"]), size, int(str(self.job["count"]))),
            check=lambda: check,
            timing=timing,
        )


def bus_bytes(kind: str, size: int, count: int) -> int:
    share = {"all_reduce": 2 * (count - 1), "point_to_point": count}.get(kind, count - 1)
    return size * share // count


def meet(job: Mapping[str, Any]) -> dict[int, Answer]:
    """Start a process for each device, wait for them with a limit, and read what the first wrote down."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        spawn = multiprocessing.get_context("spawn")
        processes = [
            spawn.Process(target=member, args=(job, rank, folder), daemon=True) for rank in range(job["count"])
        ]
        for process in processes:
            process.start()
        _end(processes, time.monotonic() + JOIN_S)
        written = Path(folder) / "answers.json"
        if written.exists():
            return {int(size): found for size, found in json.loads(written.read_text()).items()}
        reasons = [file.read_text() for file in sorted(Path(folder).glob("refusal-*"))]
        codes = [process.exitcode for process in processes]
        raise Skip(reasons[0] if reasons else f"the processes ended with {codes} and without an answer")


def _end(processes: Sequence[Any], stop_s: float) -> None:
    """No process outlives its time, whatever it hangs in."""
    for process in processes:
        process.join(max(0.1, stop_s - time.monotonic()))
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join(10)


def member(job: Mapping[str, Any], rank: int, folder: str) -> None:
    """What each process does."""
    import torch

    distributed: Any = import_module("torch.distributed")
    gpu = job["backend"] == "nccl"
    where = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(rank)
    try:
        store = distributed.FileStore(os.path.join(folder, "store"), job["count"])
        limit = timedelta(seconds=STEP_S)
        distributed.init_process_group(job["backend"], store=store, rank=rank, world_size=job["count"], timeout=limit)
        answers = {size: measured(torch, distributed, job["kind"], size, where) for size in job["sizes"]}
        if rank == 0:
            Path(folder, "writing").write_text(json.dumps(answers))
            os.replace(os.path.join(folder, "writing"), os.path.join(folder, "answers.json"))
        distributed.barrier()
        distributed.destroy_process_group()
    except (RuntimeError, ValueError, OSError) as error:
        Path(folder, f"refusal-{rank}").write_text(f"{type(error).__name__}: {str(error).splitlines()[0]}"[:250])
    os._exit(0)  # A communicator that hangs in its destructor must not hold the others.


def measured(torch: Any, distributed: Any, kind: str, size: int, where: Any) -> Answer:
    rank, count = distributed.get_rank(), distributed.get_world_size()
    call, check = OPERATIONS[kind](torch, distributed, size, where, rank, count)
    samples = _samples(torch, distributed, call, where)
    error = torch.tensor([check()], device=where, dtype=torch.float32)
    distributed.all_reduce(error, op=distributed.ReduceOp.MAX)
    # A collective is over when its last member is: the slowest of each sample.
    times = torch.tensor(samples, device=where, dtype=torch.float32)
    distributed.all_reduce(times, op=distributed.ReduceOp.MAX)
    found = summary(times.tolist())
    limit = 1e-2 if kind == "all_reduce" else 0.0
    timing = {"median_s": found.median_s, "p10_s": found.p10_s, "p90_s": found.p90_s, "n": found.n}
    return {**timing, "error": float(error), "limit": limit}


def _samples(torch: Any, distributed: Any, call: Callable[[], Any], where: Any) -> list[float]:
    """Seconds of one call, of batches issued together; every member makes the same number of calls."""
    gpu = where.type == "cuda"
    for _ in range(5):
        call()
    one_s = torch.tensor([_batch(torch, call, gpu, 3)], device=where)
    distributed.all_reduce(one_s, op=distributed.ReduceOp.MAX)
    each = max(1, min(200, int(2e-3 / max(float(one_s), 1e-6))))
    batches = 20 if gpu else 5
    found = []
    for _ in range(batches):
        distributed.barrier()
        found.append(_batch(torch, call, gpu, each))
    return found


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
    """Values that tell which member they are of and that the others can make again."""
    values = torch.randn(size // 2, generator=torch.Generator().manual_seed(rank + 1))
    return values.to(torch.bfloat16).to(where)


def _wrong(found: Any, expected: Any) -> float:
    return float((found != expected).float().mean())


def _all_reduce(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    """In place: repeated sums grow, so each call starts from a value that was divided by the number of members."""
    x = _message(torch, size, where, rank)

    def check() -> float:
        mine = _message(torch, size, where, rank)
        distributed.all_reduce(mine)
        expected = sum(_message(torch, size, "cpu", other).double() for other in range(count))
        return float(torch.linalg.vector_norm(mine.cpu().double() - expected) / torch.linalg.vector_norm(expected))

    return lambda: distributed.all_reduce(
        x, op=distributed.ReduceOp.AVG if where.type == "cuda" else distributed.ReduceOp.MAX
    ), check


def _all_gather(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    x = _message(torch, size // count, where, rank)
    out = torch.full((len(x) * count,), float("nan"), device=where, dtype=x.dtype)

    def check() -> float:
        expected = torch.cat([_message(torch, size // count, "cpu", other) for other in range(count)])
        return _wrong(out.cpu(), expected)

    return lambda: distributed.all_gather_into_tensor(out, x), check


def _all_to_all(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    x = _message(torch, size, where, rank)
    out = torch.full_like(x, float("nan"))
    part = len(x) // count

    def check() -> float:
        sent = [_message(torch, size, "cpu", other)[rank * part : (rank + 1) * part] for other in range(count)]
        return _wrong(out.cpu(), torch.cat(sent))

    return lambda: distributed.all_to_all_single(out, x), check


def _point_to_point(torch: Any, distributed: Any, size: int, where: Any, rank: int, count: int) -> Any:
    """From the first to the second, one way."""
    x = (
        _message(torch, size, where, 0)
        if rank == 0
        else torch.full((size // 2,), float("nan"), device=where, dtype=torch.bfloat16)
    )

    def call() -> Any:
        return distributed.send(x, 1) if rank == 0 else distributed.recv(x, 0)

    return call, lambda: _wrong(x.cpu(), _message(torch, size, "cpu", 0))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
