"""The long proof of `make soak`: workers killed again and again, on both brokers, and what became of each advice.

`python -m tests.soak docs/reference/reliability.md` writes the table that it measured.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests import services, soak_service
from tests.soak_agents import AGENTS, LEASE_S, SECONDS, prove
from tests.soak_proof import ENDS, Proof, service, settled
from tests.world import TIMINGS, World, kill

ROUNDS, KILLS = 20, 100
SEED = 1
RACED = 2000
BUSY_S = 0.5
LOADED_BUSY_S = 1.5  # long enough that jobs wait and run whenever a worker is told to stop


def kill_while_computing(world: World, kind: str) -> Proof:
    """The worker holds the lease when it is killed; another one must start the advice again."""
    rounds = KILLS if kind == kinds()[-1] else ROUNDS
    proof = Proof("kill -9 while computing", kind, rounds)
    world.beat()
    for _ in range(rounds):
        (world.folder / "go").unlink(missing_ok=True)
        starts = len(world.runs())
        worker = world.worker()
        world.ask()
        world.until(lambda starts=starts: len(world.runs()) == starts + 1)
        kill(worker)
        killed_at = time.monotonic()
        other = world.worker()
        world.until(lambda starts=starts: len(world.runs()) == starts + 2)
        proof.waits_s.append(time.monotonic() - killed_at)
        world.let_go()
        world.until(lambda: "running" not in world.states() and "queued" not in world.states())
        kill(other)
    proof.ends = world.rows(ENDS)
    return proof


def kill_at_any_moment(world: World, kind: str) -> Proof:
    """The worker is killed at a random moment: before the claim, while computing, while writing, after."""
    chance = random.Random(SEED)
    proof = Proof("kill -9 at a random moment", kind, 2 * ROUNDS)
    world.extra["ASSAY_TEST_BUSY_S"] = str(BUSY_S)
    world.let_go()
    world.beat()
    worker = world.worker()
    for _ in range(ROUNDS):
        world.ask(2)
        time.sleep(chance.uniform(0, 4 * BUSY_S))
        kill(worker)
        worker = world.worker()
    world.until(lambda: not {"queued", "running"} & set(world.states()), limit_s=300)
    proof.ends = world.rows(ENDS)
    return proof


def lose_messages(world: World, kind: str) -> Proof:
    """Every waiting message is deleted while nobody works."""
    proof = Proof("all messages lost", kind, 10 * ROUNDS)
    world.let_go()
    world.ask(10 * ROUNDS)
    if world.redis_url:
        with services.redis_keys(world.redis_prefix):
            pass  # leaving it deletes the keys
    else:
        shutil.rmtree(world.folder / "broker" / "messages")
        (world.folder / "broker" / "messages").mkdir()
    world.beat()
    world.worker()
    world.until(lambda: not {"queued", "running"} & set(world.states()), limit_s=300)
    proof.ends = world.rows(ENDS)
    return proof


def deliver_often(world: World, kind: str) -> Proof:
    """Each message is sent 20 times to two workers."""
    proof = Proof("each message 20 times, two workers", kind, ROUNDS)
    world.let_go()
    ids = world.ask(ROUNDS)
    world.python("-c", f"from advisor.celery import app\nfor pk in {ids} * 19: app.send_task('advice.run', args=[pk])")
    world.worker()
    world.worker()
    world.beat()
    world.until(lambda: not {"queued", "running"} & set(world.states()), limit_s=300)
    assert len(world.runs()) == ROUNDS, f"{len(world.runs())} calculations of {ROUNDS} advices"
    proof.ends = world.rows(ENDS)
    return proof


def rolling_restart(
    world: World, kind: str, pool: str = "", workers: int = 3, rounds: int = 4, jobs: int = ROUNDS
) -> Proof:
    """A deployment under load: SIGTERM to one worker after another, its successor started first, while jobs run.

    The grace period is shorter than some jobs and longer than others, so that both ways to end are taken.
    """
    pool = pool or ("prefork" if world.redis_url else "solo")
    chance = random.Random(SEED)
    proof = Proof(f"rolling restart, SIGTERM ({pool})", kind, workers * rounds * jobs, most_attempts=1)
    world.extra |= {"ASSAY_TEST_BUSY_S": str(LOADED_BUSY_S), "ASSAY_GRACE_S": str(LOADED_BUSY_S / 2)}
    world.let_go()
    world.beat()
    living = [world.worker(pool) for _ in range(workers)]
    for _ in range(workers * rounds):
        world.ask(jobs)
        world.until(lambda: "running" in world.states() or settled(world))
        time.sleep(chance.uniform(0, LOADED_BUSY_S))
        leaving = living.pop(0)
        living.append(world.worker(pool))
        leaving.send_signal(signal.SIGTERM)
        world.until(lambda leaving=leaving: leaving.poll() is not None)
    world.until(lambda: settled(world), limit_s=300)
    proof.ends = world.rows(ENDS)
    proof.repeated, proof.returned = len(world.repeated()), len(world.runs()) - proof.asked
    return proof


FAULTS: list[Callable[[World, str], Proof]] = [
    kill_while_computing,
    kill_at_any_moment,
    lose_messages,
    deliver_often,
    rolling_restart,
]


def kinds() -> list[str]:
    found = ["sqlite, files"]
    if services.redis_url():
        found.append("sqlite, redis")
        if services.postgres_url():
            found.append("postgres, redis")
    return found


def race(kind: str) -> tuple[str, bool]:
    """Eight processes that lease 2,000 probe jobs of one database: the line of the table, and whether it holds."""
    with service(kind) as world:
        world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
        found = json.loads(world.python("-m", "tests.probes.racers", str(RACED)))
    holds = found["leases"] == RACED and not found["double"] and not found["never"]
    figures = f"{found['leases']} | {found['double']} | {found['never']} | {found['leases_per_s']}"
    return f"| {kind.split(',')[0]} | {RACED} | {figures} | {'holds' if holds else 'BROKEN'} |", holds


CALLS = 100  # of each operation that fit its description, and that do not


def calls_as_described() -> tuple[str, bool]:
    """Generated calls of the whole API by three callers: what became of them, and whether all was as described."""
    began, env = time.monotonic(), {**os.environ, "ASSAY_API_CALLS": str(CALLS)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/api/test_api_described.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    holds = done.returncode == 0
    if not holds:
        print(done.stdout[-20_000:], flush=True)
    verdict = "every answer was as described" if holds else "BROKEN: some answers were not as described"
    return f"{verdict} ({(time.monotonic() - began) / 60:.0f} minutes)", holds


def further_variants() -> tuple[str, bool]:
    """Tests that the normal suite leaves out: further brokers, pools and questions, a Redis that hangs."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "soak"], capture_output=True, text=True
    )
    holds = done.returncode == 0
    if not holds:
        print(done.stdout[-20_000:], flush=True)
    minutes = (time.monotonic() - began) / 60
    return f"{'all hold' if holds else 'BROKEN: some do not hold'} ({minutes:.0f} minutes)", holds


def page(rows: list[str], races: list[str], swarm: list[str], under_load: list[str], calls: str, variants: str) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    times = ", ".join(f"{name.removeprefix('ASSAY_').lower()} {value}" for name, value in TIMINGS.items())
    return "\n".join(
        [
            "# Reliability under faults",
            "",
            "What happens to accepted work when processes are killed, messages are lost or agents die?",
            "",
            "Generated by `make soak` (`python -m tests.soak docs/reference/reliability.md`); do not edit. It breaks a",
            f"real service, whose engine is replaced by one that waits, with these timings: {times}.",
            "",
            "The promise: every accepted advice ends as done, failed or canceled with a reason, even if every "
            "process is",
            "killed, and a result is counted once.",
            "[Operations](../how-to/operations.md#what-happens-to-accepted-work) explains how.",
            "",
            f"Measured {datetime.now(UTC):%Y-%m-%d} at {commit or 'an unknown commit'}, seed {SEED}.",
            "",
            "## Advice",
            "",
            "| fault | database, broker | advices | done | most attempts | to next start, median / max | promise |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "The time to the next start includes the start of the new worker process. A request that is not done here",
            "lost three workers in a row and failed with that reason. In a rolling restart one worker after another",
            "gets SIGTERM while it computes: every advice must be done after one attempt, and none is computed again.",
            "",
            "## Probe jobs",
            "",
            "A probe job is leased to one machine at a time, and a result is counted once. Eight processes compete for",
            "the same jobs:",
            "",
            "| database | jobs | leases | double | never leased | leases/s | promise |",
            "|---|---|---|---|---|---|---|",
            *races,
            "",
            "Simulated agents poll one server with two web processes at the interval that the server sets. One "
            "in twenty",
            f"dies while it holds a job (leases of {LEASE_S:g} s). Server, database and agents share the processors.",
            "",
            *swarm,
            "",
            '"In the server" is the time inside the application, from the web server\'s log. What the agents '
            "measure beyond",
            "that is the queue in front of it and their own lag: how late their process wakes up.",
            "",
            "## A service under load",
            "",
            "Here the engine computes real answers, except where the service is taken apart. Clients, server, workers "
            "and",
            "databases share the processors.",
            "",
            "| drill | database, broker | measured | promise |",
            "|---|---|---|---|",
            *under_load,
            "",
            "## The API and its description",
            "",
            "Schemathesis calls every operation of the OpenAPI document without a token, with one that may submit and",
            "with one of an administrator: at the edges of every value, and with",
            f"{CALLS} generated calls that fit the document and {CALLS} that do not. Result: {calls}.",
            "",
            "## Further variants",
            "",
            "The test suite stops workers gracefully on one broker, takes Redis away in one way, and asks one question "
            "of each",
            "kind. These runs repeat that on every broker and pool, with a Redis that hangs and with more questions",
            f"(`pytest -m soak`). Result: {variants}.",
            "",
        ]
    )


def main(target: Path) -> int:
    proofs, found = [], kinds()
    calls, described = calls_as_described()
    print(calls, flush=True)
    variants, varied = further_variants()
    print(variants, flush=True)
    races = [race(kind) for kind in dict.fromkeys([found[0], found[-1]])]
    swarm = prove(float(os.environ.get("ASSAY_SOAK_S", SECONDS)), int(os.environ.get("ASSAY_SOAK_AGENTS", AGENTS)))
    print(*[line for line, _ in races], *swarm.lines(), sep="\n", flush=True)
    drills = [drill() for drill in soak_service.DRILLS.values()]
    print(*[drill.row() for drill in drills], sep="\n", flush=True)
    for kind in found:
        for fault in FAULTS:
            with service(kind) as world:
                proofs.append(fault(world, kind))
            print(proofs[-1].row(), flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = [proof.row() for proof in proofs], [line for line, _ in races], swarm.lines()
    target.write_text(page(*lines, [drill.row() for drill in drills], calls, variants))
    hold = (
        described
        and varied
        and swarm.holds
        and all(drill.holds for drill in drills)
        and all(holds for _, holds in races)
        and all(proof.holds for proof in proofs)
    )
    return 0 if hold else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
