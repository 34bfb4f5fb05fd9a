"""What every drill of `make soak` shares: a service of its own, and what became of the advices that were asked."""

import statistics
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import services
from tests.world import World

ENDS = "select state, attempt, (select count(*) from advisor_option o where o.advice_id = a.id) from advisor_advice a"


@dataclass
class Proof:
    """What one way of failing did to the advices that were asked."""

    fault: str
    where: str
    asked: int
    ends: list[tuple[str, int, int]] = field(default_factory=list)  # state, attempt, options
    waits_s: list[float] = field(default_factory=list)  # from the fault to the next start of that advice
    most_attempts: int = 3  # that this fault may cost
    repeated: int = 0  # calculations of advices that were done already
    returned: int = 0  # that went back to the queue when their grace period ended

    @property
    def done(self) -> int:
        return sum(state == "done" for state, _, _ in self.ends)

    @property
    def holds(self) -> bool:
        """Every advice ended as done or as failed after three lost workers, and none has its options twice."""
        fine = [s == "done" and options == 2 or s == "failed" and attempt == 3 for s, attempt, options in self.ends]
        cheap = all(attempt <= self.most_attempts for _, attempt, _ in self.ends)
        return len(fine) == self.asked and all(fine) and cheap and not self.repeated

    def row(self) -> str:
        waits = f"{statistics.median(self.waits_s):.1f} / {max(self.waits_s):.1f} s" if self.waits_s else "-"
        attempts = max(attempt for _, attempt, _ in self.ends)
        verdict = "holds" if self.holds else "BROKEN"
        return f"| {self.fault} | {self.where} | {self.asked} | {self.done} | {attempts} | {waits} | {verdict} |"


@contextmanager
def service(kind: str) -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prefix = f"assay-soak-{uuid.uuid4().hex}:"
        url = stack.enter_context(services.postgres_database()) if "postgres" in kind else f"sqlite:///{folder}/db"
        redis_url = stack.enter_context(services.redis_keys(prefix)) if "redis" in kind else ""
        world = World(folder, url, redis_url, prefix)
        stack.callback(world.end)
        world.python("manage.py", "migrate", "-v0")
        yield world


def settled(world: World) -> bool:
    return not {"queued", "running"} & set(world.states())
