"""The device as jax reports it, and an operator to time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from probes.agent.measure import CACHES, Check, Timing

MAX_SETS: Final = 32


@dataclass(frozen=True)
class JaxDevice:
    """The first local device. `fraction`: the share of its memory that XLA may use."""

    backend: str
    jax: Any
    name: str
    memory_bytes: int
    l2_bytes: int
    count: int
    fraction: float
    sensors: Callable[[], Mapping[str, float]] | None = None

    @property
    def gpu(self) -> bool:
        return self.backend != "cpu"

    def sets(self, set_bytes: int) -> int:
        """How many sets of operands keep the caches cold, using at most a third of the memory."""
        wanted = -(-CACHES * self.l2_bytes // max(set_bytes, 1)) + 1
        return max(1, min(wanted, MAX_SETS, self.memory_bytes // 3 // max(set_bytes, 1)))


@dataclass(frozen=True)
class Program:
    """An operator, the sets of operands to rotate through, and a check of its output."""

    function: Callable[..., Any]
    sets: list[tuple[Any, ...]]
    check: Callable[[Any], Check] | None = None
    path: Callable[[str], str] = lambda text: "native"
    note: str | None = None
    wrap: Callable[[Any], Any] | None = None  # maps the whole loop to a device mesh
    timing: Timing | None = None  # set if the operator was already timed, since a device loop cannot
