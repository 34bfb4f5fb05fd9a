"""The whole service under load, and what breaks around it: `python -m tests.soak_service [--small] [NAME ...]`.

`make soak` runs every drill in full and publishes the figures. `--small` shortens them, to see that they work.
"""

import http.client
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.ops.supervise import free_port, web_command
from tests import later, services
from tests.load import bench_web
from tests.soak_proof import ENDS, Proof, service, settled
from tests.world import ROOT, World

SMALL = "--small" in sys.argv
PLANNERS, ANSWERS, QUEUED = (6, 24, 40) if SMALL else (50, 2000, 200)
ROUNDS = 1 if SMALL else 5
SLOTS = 2  # calculations at once
MOST_ACCEPTED_MS, MOST_CPU_RATIO, LEAST_PER_S, MOST_GROWTH = 300.0, 1.3, 300.0, 0.1
BUSY_S = 1.0
CELERY = "celery -A advisor.celery"
PLAIN = "--without-mingle --without-gossip -l WARNING"
NO_LIMITS = dict.fromkeys(("ASSAY_MAX_QUEUED_ORGANIZATION", "ASSAY_MAX_QUEUED_PERSON"), "100000")
QUESTION = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2},
    "variants": "no",
}
CHIPS = ("h100-sxm", "h200-sxm", "l40s", "mi300x")
ASK = """
import json, sys, django; django.setup()
from advisor import advise, workload
for text in sys.stdin: advise.request(workload.parse(json.loads(text)))
"""


@dataclass(frozen=True)
class Drill:
    name: str
    where: str
    figures: str
    holds: bool

    def row(self) -> str:
        return f"| {self.name} | {self.where} | {self.figures} | {'holds' if self.holds else 'BROKEN'} |"


def of(proof: Proof, figures: str = "") -> Drill:
    """A drill whose promise is that of every advice."""
    most = max(attempt for _, attempt, _ in proof.ends)
    said = f"{proof.done} of {proof.asked} done, {most} attempts at most, {proof.repeated} computed again"
    return Drill(proof.fault, proof.where, f"{said}{figures}", proof.holds)


def best_kind() -> str:
    database = "postgres" if services.postgres_url() else "sqlite"
    return f"{database}, {'redis' if services.redis_url() else 'files'}"


@contextmanager
def loaded(kind: str) -> Iterator[World]:
    """A service with the shipped catalog and the timings of production."""
    with service(kind) as world:
        world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_LOG_LEVEL": "ERROR", **NO_LIMITS}
        world.extra |= {"ASSAY_LEASE_S": "30", "ASSAY_RESEND_S": "15", "ASSAY_SWEEP_S": "5"}
        world.python("manage.py", "load_catalog", "--no-scores", "-v0")
        yield world


def start(world: World, *command: str) -> subprocess.Popen[bytes]:
    with (world.folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT, env=world.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    world.processes.append(process)
    return process


def web(world: World) -> tuple[int, subprocess.Popen[bytes]]:
    port = free_port("127.0.0.1")
    process = start(world, *web_command("127.0.0.1", port, 2))
    world.until(lambda: services.answers(port), limit_s=120)
    return port, process


def call(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    """(status, JSON). Raises OSError: the server accepts no connections, or ends one without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = json.dumps(body).encode() if body is not None else None
        connection.request("POST" if given else "GET", path, given, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def question(n: int) -> dict[str, Any]:
    allowed = {"accelerators": {"allow": [CHIPS[n % len(CHIPS)]]}}
    return {**QUESTION, "name": f"small {n}", "constraints": allowed}


def under_way(world: World) -> bool:
    """On a busy machine, short jobs may be done before their states are read."""
    return "running" in world.states() or settled(world)


# --- load -------------------------------------------------------------------------------------------------------


def planners() -> Drill:
    """All ask at once; the workers then have nothing else to do until the last one is answered."""
    with loaded(best_kind()) as world:
        port, _ = web(world)
        pool = "prefork" if world.redis_url else "solo"
        worker = start(world, *f"{CELERY} worker -P {pool} -c {SLOTS} -Q answers,probes {PLAIN}".split())
        start(world, *f"{CELERY} worker -P solo -Q sweeps,refresh -n periodic@here {PLAIN}".split())
        start(world, *f"{CELERY} beat -s {world.folder}/beat --pidfile= -l WARNING".split())
        call(port, "/api/v1/advice", question(0))  # everything is loaded
        world.until(lambda: settled(world), limit_s=300)
        begun_s, cpu_s = time.monotonic(), bench_web.cpu_s(worker.pid)

        def ask(n: int) -> tuple[int, float]:
            asked_s = time.monotonic()
            status, _ = call(port, "/api/v1/advice", question(n))
            return status, 1e3 * (time.monotonic() - asked_s)

        with ThreadPoolExecutor(PLANNERS) as people:
            answers = list(people.map(ask, range(PLANNERS)))
        world.until(lambda: settled(world), limit_s=1800)
        elapsed_s, cpu_s = time.monotonic() - begun_s, bench_web.cpu_s(worker.pid) - cpu_s
        states = world.states()
    slots = SLOTS if pool == "prefork" else 1
    p95_ms, ratio = sorted(ms for _, ms in answers)[int(0.95 * (PLANNERS - 1))], elapsed_s / (cpu_s / slots)
    accepted = sum(status == 202 for status, _ in answers)
    holds = accepted == PLANNERS and p95_ms <= MOST_ACCEPTED_MS and ratio <= MOST_CPU_RATIO
    figures = (
        f"{accepted} accepted, p95 {p95_ms:.0f} ms; all done after {elapsed_s:.0f} s, {ratio:.2f} times their CPU "
    )
    figures += f"time divided by {slots} slots"
    return Drill(f"{PLANNERS} planners at once", best_kind(), figures, holds and set(states) == {"done"})


def cached_api() -> Drill:
    with loaded(best_kind()) as world:
        port, _ = web(world)
        time.sleep(bench_web.WARM_S)
        paths = [f"/api/v1/{name}" for name in bench_web.LISTS]
        bench_web.requests_per_s(port, paths)  # fills the caches of both processes
        per_s, median_ms, p99_ms = bench_web.requests_per_s(port, paths)
    figures = f"{per_s:.0f} requests/s, median {median_ms:.0f} ms, p99 {p99_ms:.0f} ms"
    return Drill("REST lists from the cache, 8 connections", best_kind(), figures, per_s >= LEAST_PER_S)


def flat_memory() -> Drill:
    """One worker process that is never replaced."""
    with loaded("sqlite, files") as world:
        texts = "\n".join(json.dumps(question(n)) for n in range(ANSWERS))
        subprocess.run([sys.executable, "-c", ASK], input=texts, env=world.env, cwd=ROOT, text=True, check=True)
        worker = start(world, *f"{CELERY} worker -P solo {PLAIN}".split())
        start(world, *f"{CELERY} beat -s {world.folder}/beat --pidfile= -l WARNING".split())
        seen: list[tuple[int, float]] = []

        def is_settled() -> bool:
            states = world.states()
            seen.append((sum(state == "done" for state in states), resident_mb(worker.pid)))
            time.sleep(1)
            return not {"queued", "running"} & set(states)

        world.until(is_settled, limit_s=7200)
        states = world.states()
    early = max(mb for done, mb in seen if done <= max(0.2 * ANSWERS, seen[0][0] + 8))
    late = max(mb for done, mb in seen if done >= 0.8 * ANSWERS)
    growth = late / early - 1
    figures = (
        f"{states.count('done')} done; {early:.0f} MB in the first fifth, {late:.0f} MB in the last ({growth:+.1%})"
    )
    return Drill(f"memory of a worker, {ANSWERS} answers", "sqlite, files", figures,
                 growth <= MOST_GROWTH and set(states) == {"done"})  # fmt: skip


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3


# --- deployment -------------------------------------------------------------------------------------------------


def deployment() -> Drill:
    """Web servers and workers are replaced, one after the other, while clients ask and read."""
    with loaded(best_kind()) as world:
        world.extra |= {"ASSAY_TEST_BUSY_S": str(BUSY_S), "ASSAY_GRACE_S": "2", "ASSAY_OUTAGE_S": "60"}
        world.let_go()
        world.beat()
        worker, (port, server) = world.worker(), web(world)
        ports, accepted, wrong, stop = [port], list[str](), list[str](), threading.Event()

        def ask(n: int) -> None:
            while not stop.is_set():
                try:
                    unique = {"name": uuid.uuid4().hex}  # calculations are counted by name
                    status, told = call(ports[-1], "/api/v1/advice", question(n) | unique)
                except ConnectionRefusedError:  # nothing was sent: a load balancer takes the other server
                    continue
                except OSError as error:
                    wrong.append(repr(error))
                    continue
                accepted.append(told["id"]) if status == 202 else wrong.append(str(status))
                time.sleep(0.2)

        clients = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
        for client in clients:
            client.start()
        for _ in range(ROUNDS):
            newer, (port, successor) = world.worker(), web(world)
            world.until(lambda port=port: call(port, "/readyz")[0] == 200)  # type: ignore[misc]
            ports.append(port)
            for leaving in (server, worker):
                leaving.send_signal(signal.SIGTERM)
                world.until(lambda leaving=leaving: leaving.poll() is not None)  # type: ignore[misc]
            server, worker = successor, newer
        stop.set()
        for client in clients:
            client.join()
        world.until(lambda: settled(world), limit_s=600)
        proof = Proof("deployment of web and workers under load", best_kind(), len(accepted), most_attempts=1)
        proof.ends, proof.repeated = world.rows(ENDS), len(world.repeated())
    drill = of(proof, f"; {len(wrong)} requests failed")
    return Drill(drill.name, drill.where, drill.figures, drill.holds and not wrong)


# --- what breaks around it --------------------------------------------------------------------------------------


def postgres_restarted() -> Drill:
    """Every other time as a crash; workers keep what they computed until they can write it."""
    if services.PrivatePostgres.programs() is None:
        return Drill("PostgreSQL restarted", "postgres, files", "not run: no initdb here", True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o711)
        server = services.PrivatePostgres(folder / "postgres")
        server.start()
        stack.callback(server.stop)
        own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = World(own, server.url, extra={"ASSAY_TEST_BUSY_S": str(BUSY_S), "ASSAY_LEASE_S": "6"})
        stack.callback(world.end)
        world.python("manage.py", "migrate", "-v0")
        world.let_go()
        world.beat()
        for _ in range(2):
            world.worker()
        proof = Proof("PostgreSQL restarted while jobs run", "postgres, files", 10 * ROUNDS, most_attempts=1)
        for n in range(ROUNDS):
            world.ask(10)
            world.until(lambda: under_way(world))
            server.restart("fast" if n % 2 else "immediate")
        world.until(lambda: settled(world), limit_s=300)
        proof.ends, proof.repeated = world.rows(ENDS), len(world.repeated())
        return of(proof)


def redis_flushed() -> Drill:
    """All keys go while workers are connected and jobs wait."""
    if shutil.which("redis-server") is None:
        return Drill("Redis flushed", "sqlite, redis", "not run: no redis-server here", True)
    import redis

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = services.PrivateRedis(folder)
        server.start()
        stack.callback(server.stop)
        world = World(folder, f"sqlite:///{folder}/db", server.url)
        stack.callback(world.end)
        world.python("manage.py", "migrate", "-v0")
        world.beat()
        for _ in range(2):
            world.worker("prefork")
        world.ask(QUEUED)
        world.until(lambda: "running" in world.states())
        redis.Redis.from_url(server.url).flushall()
        world.let_go()
        world.until(lambda: settled(world), limit_s=600)
        proof = Proof(f"Redis flushed with {QUEUED} jobs", "sqlite, redis", QUEUED, most_attempts=1)
        proof.ends, proof.repeated = world.rows(ENDS), len(world.repeated())
        return of(proof)


def clock_jumps() -> Drill:
    """The clock of all processes, and so of SQLite, jumps by hours in both directions while jobs run and wait."""
    with service("sqlite, files") as world:
        shift = world.folder / "shift"
        shift.write_bytes(struct.pack("q", 0))
        world.extra |= {"LD_PRELOAD": later.library(world.folder), "CLOCK_SHIFT_FILE": str(shift)}
        world.extra |= {"ASSAY_TEST_BUSY_S": str(BUSY_S)}
        world.let_go()
        world.beat()
        for _ in range(2):
            world.worker()
        jumps = (3600, -7200, 0, 10, -10)[: ROUNDS + 1]
        for seconds in jumps:
            world.ask(10)
            world.until(lambda: under_way(world))
            with shift.open("r+b") as file:
                file.write(struct.pack("q", seconds))
            shutil.rmtree(world.folder / "broker" / "messages", ignore_errors=True)  # so that the sweep is needed
            (world.folder / "broker" / "messages").mkdir(exist_ok=True)
            world.until(lambda: settled(world), limit_s=120)
        proof = Proof("clock set forward and back by hours", "sqlite, files", 10 * len(jumps), most_attempts=2)
        proof.ends, proof.repeated = world.rows(ENDS), len(world.repeated())
        return of(proof)


def two_beats() -> Drill:
    kind = best_kind()
    with service(kind) as world:
        world.extra["ASSAY_TEST_BUSY_S"] = str(BUSY_S)
        world.let_go()
        world.beat()
        world.start("beat", "-s", str(world.folder / "beat-2"), "--pidfile", "")
        for _ in range(2):
            world.worker()
        world.ask(QUEUED // 4)
        world.until(lambda: settled(world), limit_s=600)
        proof = Proof("two beats", kind, QUEUED // 4, most_attempts=1)
        proof.ends, proof.repeated = world.rows(ENDS), len(world.repeated())
        return of(proof)


def backup_and_restore(kind: str) -> Drill:
    """Made while jobs run; restored into a new database, where an answer is read and the others are computed."""
    with service(kind) as world, service(kind) as other:
        world.extra["ASSAY_TEST_BUSY_S"] = str(BUSY_S)
        world.let_go()
        world.beat()
        world.worker()
        ids = world.ask(10)
        world.until(lambda: world.states().count("done") >= 2)
        file, begun_s = other.folder / "backup.tar", time.monotonic()
        for each in (world, other):
            each.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
        world.python("manage.py", "backup", "--to", str(file))
        made_s = time.monotonic() - begun_s
        world.until(lambda: settled(world), limit_s=120)
        other.python("manage.py", "restore", str(file))
        taken = [uuid.UUID(str(pk)) for (pk,) in other.rows("select id from advisor_advice where state = 'done'")]
        other.let_go()
        other.beat()
        other.worker()
        other.until(lambda: settled(other), limit_s=120)
        (first, _), (second, _) = web(world), web(other)
        same = [call(first, f"/api/v1/advice/{pk}")[1]["result"] == call(second, f"/api/v1/advice/{pk}")[1]["result"]
                for pk in taken]  # fmt: skip
        proof = Proof("backup under load, restored", kind, len(ids), ends=other.rows(ENDS))
    drill = of(proof, f"; {len(taken)} were done in the backup ({made_s:.1f} s) and read the same")
    return Drill(drill.name, drill.where, drill.figures, drill.holds and all(same) and len(taken) >= 2)


DRILLS: dict[str, Callable[[], Drill]] = {
    "planners": planners,
    "cached_api": cached_api,
    "flat_memory": flat_memory,
    "deployment": deployment,
    "postgres_restarted": postgres_restarted,
    "redis_flushed": redis_flushed,
    "clock_jumps": clock_jumps,
    "two_beats": two_beats,
    "backup_sqlite": lambda: backup_and_restore("sqlite, files"),
    "backup_postgres": lambda: backup_and_restore("postgres, files" if services.postgres_url() else "sqlite, files"),
}

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    broken = 0
    for name in [word for word in sys.argv[1:] if not word.startswith("-")] or DRILLS:
        drill = DRILLS[name]()
        broken += not drill.holds
        print(drill.row(), flush=True)
    sys.exit(1 if broken else 0)
