"""The device as jax names it, and one timed operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from probes.agent.measure import CACHES, Check, Timing

MOST_SETS: Final = 32


@dataclass(frozen=True)
class JaxDevice:
    """The first local device as jax names it; `fraction` is the share of its memory that XLA was given."""

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
        """How many sets of operands leave the caches cold, within a third of the memory."""
        wanted = -(-CACHES * self.l2_bytes // max(set_bytes, 1)) + 1
        return max(1, min(wanted, MOST_SETS, self.memory_bytes // 3 // max(set_bytes, 1)))


@dataclass(frozen=True)
class Program:
    """An operator, the sets of operands that it is called with in turn, and the check of one output."""

    function: Callable[..., Any]
    sets: list[tuple[Any, ...]]
    check: Callable[[Any], Check] | None = None
    path: Callable[[str], str] = lambda text: "native"
    note: str | None = None
    wrap: Callable[[Any], Any] | None = None  # Puts the whole loop on a mesh of devices.
    timing: Timing | None = None  # Already timed, where a loop on the device cannot do it.
