"""A thousand agents on one server, at the pace that it sets; some die in the middle of a job.

`python -m tests.soak_agents SECONDS AGENTS` runs it alone; `make soak` runs it in full and publishes the figures.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from advisor.ops.supervise import free_port, web_command
from probes.agent.server import signing
from tests import services
from tests.probes import samples
from tests.world import ROOT, World

SECONDS, AGENTS = 600.0, 1000
JOBS_PER_S = 2.0
DIES = 0.05  # of those that hold a job: they never come back to it
MOST_POLLS_PER_S = 120
LEASE_S = 15.0
DRAIN_S = 240.0
SEED = 1
LAG_EVERY_S = 0.05
SETTLED_S = 20.0
ACCESS = "%(m)s %(U)s %(s)s %(D)s"  # microseconds inside the application
MAKE = """
import sys, uuid, django; django.setup()
from django.utils import timezone
from probes.machines import agents
from probes.models import Agent
salt = agents.new_salt()
organisation, now = agents.default_organisation(), timezone.now()
tokens = [agents.new_token("agt") for _ in range(int(sys.argv[1]))]
Agent.objects.bulk_create(
    Agent(organisation=organisation, name=f"a{n}", install_id=uuid.uuid4().hex, token_hash=agents.hashed(token),
          token_expires_at=agents.token_expiry(), key_salt=salt, confirmed_at=now, last_seen_at=now)
    for n, token in enumerate(tokens))
key = next(agents.keys(Agent(key_salt=salt)))
print("\\n".join(f"{token}:{key}" for token in tokens))
"""
ASKS = {"agent_version": "soak", "capabilities": {"device": samples.H200}}
QUEUE = """
import sys, django; django.setup()
from probes.machines import jobs
for _ in range(int(sys.argv[1])): jobs.request({"suite": "quick"})
"""


@dataclass
class Swarm:
    """What all agents together saw."""

    port: int
    tokens: list[str]
    seconds: float
    waits_s: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # when, since the start; how long
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    lags_s: list[float] = field(default_factory=list)
    died: int = 0
    retry_s: float = 0.0

    async def run(self) -> None:
        self.begun = time.monotonic()
        self.deadline = self.begun + self.seconds
        chance = random.Random(SEED)
        agents = [self.agent(token, random.Random(chance.random())) for token in self.tokens]
        await asyncio.gather(self.watch_itself(), *agents)

    async def watch_itself(self) -> None:
        """How late this process wakes: what it adds to every wait that it measures."""
        while (begun := time.monotonic()) < self.deadline:
            await asyncio.sleep(LAG_EVERY_S)
            self.lags_s.append(time.monotonic() - begun - LAG_EVERY_S)

    async def agent(self, token: str, chance: random.Random) -> None:
        """Poll with jitter, measure for a moment, send; now and then die and start again."""
        poll_s = 10.0
        await asyncio.sleep(chance.uniform(0, poll_s))
        while time.monotonic() < self.deadline:
            status, headers, given = await self.call(token, "POST", "lease", "lease", ASKS)
            poll_s = float(headers.get("retry-after", poll_s))
            self.retry_s = max(self.retry_s, poll_s if status == 204 else 0.0)
            if status == 200:
                await self.work(token, given, chance)
            await asyncio.sleep(poll_s * chance.uniform(0.8, 1.2))

    async def work(self, token: str, given: Any, chance: random.Random) -> None:
        job, attempt = f"jobs/{given['job_id']}", given["attempt"]
        await asyncio.sleep(chance.uniform(0.5, 2))
        status, _, answer = await self.call(token, "POST", f"{job}/heartbeat", "heartbeat", {"attempt": attempt})
        if chance.random() < DIES:
            self.died += 1
            return
        if status == 200 and answer["continue"]:
            document = samples.document(given["spec"], results=[samples.known(), *samples.memory()])
            document |= {"host": {"run": uuid.UUID(int=chance.getrandbits(128)).hex}}
            await asyncio.sleep(document["duration_s"])
            await self.call(token, "PUT", f"{job}/attempts/{attempt}/result", "result", document, given)

    def wait_ms(self, kind: str, share: float, after_s: float = 0.0) -> float:
        return 1e3 * quantile([wait for when, wait in self.waits_s.get(kind, []) if when >= after_s], share)

    async def call(
        self, token: str, method: str, path: str, kind: str, body: Any, signed_for: Any = None
    ) -> tuple[int, dict[str, str], Any]:
        token, _, key = token.partition(":")
        text, begun = json.dumps(body).encode(), time.monotonic()
        lines = [
            f"{method} /api/agent/v1/{path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Agent-Protocol: 2",
            f"Authorization: Bearer {token}", "Content-Type: application/json", f"Content-Length: {len(text)}",
            f"Idempotency-Key: {samples.digest(text)}",
        ]  # fmt: skip
        lines += [f"{signing.HEADER}: {samples.signature(key, signed_for, text)}"] if signed_for else []
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
            head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        except OSError:
            self.statuses[kind, 0] += 1
            return 0, {}, None
        first, *more = head.decode().split("\r\n")
        status = int(first.split()[1]) if first else 0
        self.statuses[kind, status] += 1
        self.waits_s.setdefault(kind, []).append((begun - self.begun, time.monotonic() - begun))
        headers = dict(line.lower().split(": ", 1) for line in more)
        return status, headers, json.loads(rest) if rest and status == 200 else None


@dataclass(frozen=True)
class Proof:
    agents: int
    seconds: float
    jobs: int
    ends: dict[str, int]
    double: int
    unended: int
    died: int
    polls_per_s: float
    poll_s: float
    p50_ms: float
    p99_ms: float
    settled_p99_ms: float  # without the first seconds, in which worker and beat start on the same processors
    settled_max_ms: float
    result_p99_ms: float
    server_ms: dict[str, tuple[float, float]]  # p50, p99 inside the web process, by call
    lag_p99_ms: float  # of the process that plays the agents
    errors: int

    @property
    def holds(self) -> bool:
        return not (self.double or self.unended or self.errors) and self.polls_per_s <= MOST_POLLS_PER_S

    def lines(self) -> list[str]:
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        return [
            "| agents | seconds | jobs | how they ended | agents that died in a job | lost | double | errors "
            "| polls/s (interval) | poll p50 / p99 | p99 / max after 20 s | in the server p50 / p99 | result p99 "
            "| in the server p99 | agents' own lag p99 | promise |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            f"| {self.agents} | {self.seconds:g} | {self.jobs} | {ends} | {self.died} | {self.unended} | {self.double} "
            f"| {self.errors} | {self.polls_per_s:.1f} ({self.poll_s:g} s) | {self.p50_ms:.0f} / {self.p99_ms:.0f} ms "
            f"| {self.settled_p99_ms:.0f} / {self.settled_max_ms:.0f} ms "
            f"| {self.server_ms['lease'][0]:.0f} / {self.server_ms['lease'][1]:.0f} ms | {self.result_p99_ms:.0f} ms "
            f"| {self.server_ms['result'][1]:.0f} ms | {self.lag_p99_ms:.0f} ms "
            f"| {'holds' if self.holds else 'BROKEN'} |",
        ]


@contextmanager
def service(processes: int = 2) -> Iterator[tuple[World, int]]:
    """A web server as `make serve` runs it, a worker and beat, on PostgreSQL (SQLite where there is none)."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        found = services.postgres_url()
        url = stack.enter_context(services.postgres_database()) if found else f"sqlite:///{folder}/db"
        world, port = World(folder, url), free_port("127.0.0.1")
        world.extra |= {"ASSAY_PROBE_LEASE_S": str(LEASE_S), "DJANGO_SETTINGS_MODULE": "advisor.settings"}
        world.extra |= {"ASSAY_LOG_LEVEL": "ERROR", "ASSAY_SWEEP_S": "5"}
        stack.callback(world.end)
        world.python("manage.py", "migrate", "-v0")
        with (folder / "web").open("ab") as log:
            command = [sys.executable, "-m", *web_command("127.0.0.1", port, processes)]
            command += ["--access-logfile", str(folder / "access"), "--access-logformat", ACCESS]
            process = subprocess.Popen(command, cwd=ROOT, env=world.env, stdout=log, stderr=log, start_new_session=True)
        world.processes.append(process)
        world.until(lambda: services.answers(port))
        yield world, port


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values) or [float("nan")]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def inside(access: str) -> dict[str, tuple[float, float]]:
    """(p50, p99) in ms of the time that each kind of call spent in the application, from lines of ACCESS."""
    found: dict[str, list[float]] = {}
    for line in access.splitlines():
        path, _, micros = line.split()[1:4]
        found.setdefault(path.rpartition("/")[2], []).append(int(micros) / 1000)
    return {kind: (quantile(times, 0.5), quantile(times, 0.99)) for kind, times in found.items()}


def prove(seconds: float = SECONDS, agents: int = AGENTS) -> Proof:
    with service() as (world, port):
        tokens = world.python("-c", MAKE, str(agents)).split()
        many = int(seconds * JOBS_PER_S)
        world.python("-c", QUEUE, str(many))
        world.beat()
        world.worker()
        world.until(lambda: bool(world.rows("select 1 from advisor_duty")))  # the service runs before its agents come
        swarm = Swarm(port, tokens, seconds)
        asyncio.run(swarm.run())
        polls = len(swarm.waits_s["lease"])
        access = (world.folder / "access").read_text()
        drain(world, port, tokens)
        ends = Counter(state for (state,) in world.rows("select state from probes_job"))
        double = world.rows("select job_id from probes_result where state in ('accepted', 'late', 'quarantined') "
                            "group by job_id having count(*) > 1")  # fmt: skip
        done_without = world.rows("select id from probes_job j where state = 'done' and not exists "
                                  "(select 1 from probes_result r where r.job_id = j.id)")  # fmt: skip
        return Proof(
            agents=agents,
            seconds=seconds,
            jobs=many,
            ends=dict(ends),
            double=len(double),
            unended=many - ends["done"] - ends["failed"] + len(done_without),
            died=swarm.died,
            polls_per_s=polls / seconds,
            poll_s=swarm.retry_s,
            p50_ms=swarm.wait_ms("lease", 0.5),
            p99_ms=swarm.wait_ms("lease", 0.99),
            settled_p99_ms=swarm.wait_ms("lease", 0.99, SETTLED_S),
            settled_max_ms=swarm.wait_ms("lease", 1.0, SETTLED_S),
            result_p99_ms=swarm.wait_ms("result", 0.99),
            server_ms={"result": (float("nan"),) * 2} | inside(access),
            lag_p99_ms=1e3 * quantile(swarm.lags_s, 0.99),
            errors=sum(count for (_, status), count in swarm.statuses.items() if status not in (200, 204, 409)),
        )


def drain(world: World, port: int, tokens: list[str]) -> None:
    """Let a few agents finish what is left, and what the dead ones held."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline and world.rows("select 1 from probes_job where state in ('queued', 'leased')"):
        asyncio.run(Swarm(port, tokens[:20], 5.0).run())


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    proof = prove(*(kind(text) for kind, text in zip((float, int), sys.argv[1:], strict=False)))
    print("\n".join(proof.lines()))
    sys.exit(0 if proof.holds else 1)
