"""Forward and backward pass of a few layers beside the collectives of data parallelism: one process per GPU of a host.

With `sharding: none`, each matrix's gradient is all-reduced as soon as the backward pass has it. With `full`, each
layer's weights are also gathered before its forward and its backward pass, one layer ahead (the last layer's stay), and
gradients are reduce-scattered. The gradients of the norms, 0.004 % of all, are not sent.

A row's time is that of both at once, until the last collective ends. `parts_s` has `compute` and `communication` alone,
and `compute_beside`: the time until the compute of both at once ends. FLOPs are three forward passes; `bytes` are the
least that each device must send. The check is a reduced gradient against the float32 sum of the ranks' own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ... import facts
from ...decoders import NETS, TINY, Net, cost
from ...measure import Case, Check, Device, Scalar, Work, relative_error, summary
from ..collectives import Answers, Job, answered, keep, run_session
from .step import KEPT, LIMIT, forward_layer, parameters, weights

MATRICES = ("qkv", "out", "gate_up", "down")
SHARDINGS = ("none", "full")
LAYERS, CPU_LAYERS = 4, 2
SETUP_S = {"quick": 15.0, "full": 60.0}
ROUNDS = 3  # compute, communication and both in turn, so that all see the same clocks
WARM_S, WINDOW_S = 0.3, 0.5  # of each part in a round
Mark = Any  # a time on the host's clock, or an event on the device's
BYTES_PER_PARAMETER = 6  # a weight, its gradient, and buffers and shards of the collectives


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    net = NETS[0] if device.gpu else TINY
    backend, most = ("nccl", device.count) if device.streams else ("gloo", 2)
    count = max((n for n in (2, 4, 8) if n <= most), default=2)
    lengths: tuple[int, ...] = (8,) if not device.gpu else (4096,) if suite == "quick" else (2048, 4096, 8192)
    layers, rounds = (LAYERS, ROUNDS) if device.gpu else (CPU_LAYERS, 1)
    job: Job = {"backend": backend, "count": count, "lengths": list(lengths), "layers": layers, "rounds": rounds}
    for sharding in SHARDINGS:
        for tokens in lengths:
            key: dict[str, Scalar] = {"dtype": "bf16", "model": net.name, "layers": layers, "tokens": tokens}
            key |= {"devices": count, "sharding": sharding, "backend": backend}
            forward, _ = cost(net, "prefill", 1, tokens)
            flops, sent = 3 * layers * forward, bus_bytes(net, layers, sharding, count)
            first = (sharding, tokens) == (SHARDINGS[0], lengths[0])
            build = _builder(job, sharding, tokens, flops, sent, first)
            needs = layers * (BYTES_PER_PARAMETER * parameters(net) + 2 * KEPT * max(lengths) * net.hidden)
            yield Case(kind, key, build, flops, 0, needs, setup_s=SETUP_S[suite] if first else 0.0)


def bus_bytes(net: Net, layers: int, sharding: str, count: int) -> int:
    """The least bytes that each of `count` devices sends in a step, in bf16."""
    gathers = 2 * layers - 1 if sharding == "full" else 0
    passes = gathers + layers if sharding == "full" else 2 * layers
    return 2 * passes * parameters(net) * (count - 1) // count


def _builder(job: Job, sharding: str, tokens: int, flops: int, sent: int, first: bool) -> Callable[[Device], Work]:
    """All cases are measured in one session, as those of collectives."""

    def build(device: Device) -> Work:
        session = ("overlap", job["count"], len(job["lengths"]))
        answer, timing = answered(device, session, partial(run_session, job, measure), _name(sharding, tokens), first)
        check = Check(answer["error"], LIMIT, "float32")
        return Work([], flops, sent, lambda: check, timing=timing, parts_s=answer["parts_s"])

    return build


def _name(sharding: str, tokens: int) -> str:
    return f"{sharding} {tokens}"


# ------------------------------------------------------------------ in each process


def measure(torch: Any, distributed: Any, job: Job, where: Any, folder: str) -> None:
    device = replace(facts.detect(None), device=where, sensors=None)
    net = NETS[0] if device.gpu else TINY
    answers: Answers = {}
    _most(device, distributed, [[0.0]])  # connects the ranks here, not in autograd's thread
    for sharding in SHARDINGS:
        for tokens in job["lengths"]:
            step = Step(device, distributed, net, job["layers"], sharding, tokens)
            answers[_name(sharding, tokens)] = _measured(step, job["rounds"])
            del step
            gc.collect()  # hooks and the step refer to each other
            device.release()
            keep(distributed, answers, folder)


def _measured(step: Step, rounds: int) -> dict[str, Any]:
    device, distributed = step.device, step.distributed
    error = step.error()
    calls: dict[str, Callable[[], Mark]] = {
        "compute": partial(step.run, False), "communication": step.communicate, "both": partial(step.run, True),
    }  # fmt: skip
    parts: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            parts[name] += _samples(device, distributed, call)
    # A step ends with its slowest rank.
    slowest = {name: _most(device, distributed, samples) for name, samples in parts.items()}
    timing = summary([end for _, end in slowest["both"]])
    return {
        "median_s": timing.median_s, "p10_s": timing.p10_s, "p90_s": timing.p90_s, "n": timing.n,
        "parts_s": {
            "compute": summary([end for _, end in slowest["compute"]]).median_s,
            "communication": summary([end for _, end in slowest["communication"]]).median_s,
            "compute_beside": summary([computed for computed, _ in slowest["both"]]).median_s,
        },
        "error": _most(device, distributed, [[error]])[0][0],
    }  # fmt: skip


def _most(device: Device, distributed: Any, values: list[list[float]]) -> list[list[float]]:
    """The largest of each value over the ranks."""
    found = device.torch.tensor(values, device=device.device, dtype=device.torch.float64)
    distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
    most: list[list[float]] = found.tolist()
    return most


def _mark(device: Device) -> Mark:
    if not device.streams:
        return time.perf_counter()
    event = device.torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_s(start: Mark, end: Mark) -> float:
    return float(end - start if isinstance(start, float) else start.elapsed_time(end) / 1e3)


def _samples(device: Device, distributed: Any, call: Callable[[], Mark]) -> list[list[float]]:
    """[until the compute ended, until all ended] of each call, in seconds. Every rank makes the same number of calls.

    The calls follow each other without waiting for the host. `call` returns the mark at the end of its compute.
    """
    call()
    device.synchronize()
    start = time.perf_counter()
    call()
    device.synchronize()
    one_s = _most(device, distributed, [[time.perf_counter() - start]])[0][0]
    warm_s, window_s = (WARM_S, WINDOW_S) if device.streams else (0.0, 0.0)
    for _ in range(int(warm_s / one_s)):
        call()
    count = max(3, min(100, int(window_s / one_s)))
    marks = [(_mark(device), None)]
    for _ in range(count):
        computed = call()
        marks.append((_mark(device), computed))
    device.synchronize()
    return [
        [_between_s(start, computed), _between_s(start, end)]
        for (start, _), (end, computed) in zip(marks[:-1], marks[1:], strict=True)
    ]


@dataclass
class Step:
    """A forward and backward pass on one rank, and the collectives of its gradients and weights."""

    device: Device
    distributed: Any
    net: Net
    layers: int
    sharding: str
    tokens: int
    reducing: bool = False  # whether the hooks start collectives now
    works: list[Any] = field(default_factory=list)
    gathers: dict[int, Any] = field(default_factory=dict)  # layer -> its gather in progress

    def __post_init__(self) -> None:
        torch, net = self.device.torch, self.net
        self.ranks = self.distributed.get_world_size()
        self.mean = self.distributed.ReduceOp.AVG if self.device.streams else self.distributed.ReduceOp.SUM
        self.scale = 1 / self.ranks if self.device.streams else 1.0
        torch.manual_seed(0)  # all ranks have the same weights, and each its own input
        with torch.enable_grad():
            self.stack = [weights(self.device, net, torch.bfloat16) for _ in range(self.layers)]
            torch.manual_seed(1 + self.distributed.get_rank())
            self.x = self.device.random(self.tokens, net.hidden, dtype=torch.bfloat16)
            for at, layer in enumerate(self.stack):
                for name in MATRICES:
                    layer[name].register_post_accumulate_grad_hook(partial(self._reduce, at, name))
        self.messages = {name: torch.randn_like(self.stack[0][name]).detach() for name in MATRICES}
        if self.sharding == "full":
            whole = parameters(net)
            self.gathered = [torch.empty(whole, device=self.x.device, dtype=torch.bfloat16) for _ in range(2)]
            self.owned = self.device.random(whole // self.ranks, dtype=torch.bfloat16)
            self.shards = {
                (at, name): torch.empty(w.numel() // self.ranks, device=w.device, dtype=w.dtype)
                for at, layer in enumerate(self.stack)
                for name, w in layer.items()
                if name in MATRICES
            }

    def run(self, reducing: bool) -> Mark:
        """One step, with or without collectives. Returns the mark at the end of its compute."""
        self._compute(reducing)
        computed = _mark(self.device)
        self._finish()
        self._forget()
        return computed

    def communicate(self) -> Mark:
        """The collectives of a step without its compute."""
        for at in range(self.layers) if self.sharding == "full" else ():
            self._gather(at)
            self._wait(at)
        for at in reversed(range(self.layers)):
            if self.sharding == "full" and at < self.layers - 1:
                self._gather(at)
                self._wait(at)
            for name in MATRICES:
                self._send(at, name, self.messages[name])
        computed = _mark(self.device)
        self._finish()
        return computed

    def _compute(self, reducing: bool) -> None:
        self.reducing = reducing
        with self.device.torch.enable_grad():
            self._forward().float().pow(2).mean().backward()

    def _forget(self) -> None:
        for layer in self.stack:
            for w in layer.values():
                w.grad = None

    def _finish(self) -> None:
        for work in self.works:
            work.wait()
        self.works.clear()

    def _forward(self) -> Any:
        x = self.x
        gathers = self.reducing and self.sharding == "full"
        if gathers:
            self._gather(0)
        for at, layer in enumerate(self.stack):
            if gathers:
                self._wait(at)
                if at + 1 < self.layers:
                    self._gather(at + 1)
            x = forward_layer(self.device, self.net, x, layer)
            if gathers:
                x.register_hook(partial(self._before_backward, at))
        return x

    def _before_backward(self, at: int, gradient: Any) -> None:
        """Runs when the backward pass reaches a layer: awaits its weights and gathers those of the layer below."""
        self._wait(at)
        if at > 0:
            self._gather(at - 1)

    def _reduce(self, at: int, name: str, weight: Any) -> None:
        if self.reducing:
            self._send(at, name, weight.grad)

    def _send(self, at: int, name: str, gradient: Any) -> None:
        """Starts the reduction of one gradient over the ranks."""
        if self.sharding == "full":
            out = self.shards[at, name]
            work = self.distributed.reduce_scatter_tensor(out, gradient.view(-1), op=self.mean, async_op=True)
        else:
            work = self.distributed.all_reduce(gradient, op=self.mean, async_op=True)
        self.works.append(work)

    def _gather(self, at: int) -> None:
        """Starts to gather the weights of a layer. They are not those that it computes with."""
        out = self.gathered[at % 2]
        self.gathers[at] = self.distributed.all_gather_into_tensor(
            out[: self.owned.numel() * self.ranks], self.owned, async_op=True
        )

    def _wait(self, at: int) -> None:
        if work := self.gathers.pop(at, None):
            work.wait()

    def error(self) -> float:
        """The first layer's output projection: its reduced gradient against the sum of the ranks' gradients."""
        torch, weight = self.device.torch, self.stack[0]["out"]
        own: list[Any] = []
        hook = weight.register_hook(lambda gradient: own.append(gradient.float()))
        self._compute(reducing=True)
        self._finish()
        hook.remove()
        self.distributed.all_reduce(own[0])
        expected = (own[0] * self.scale).view(-1)
        if self.sharding == "full":
            reduced, expected = self.shards[0, "out"], expected.chunk(self.ranks)[self.distributed.get_rank()]
        else:
            reduced = weight.grad.view(-1)
        error = relative_error(torch, reduced, expected)
        self._forget()
        return error
