"""Services that tests may use: found on 127.0.0.1 or not at all."""

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def postgres_url() -> str | None:
    """The URL of a server's maintenance database, as the first user that it lets in."""
    import psycopg

    if not answers(5432):
        return None
    for user in dict.fromkeys([os.environ.get("PGUSER", "postgres"), "postgres", "root"]):
        url = f"postgresql://{user}@127.0.0.1:5432/postgres"
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            continue
        return url
    return None


def redis_url() -> str | None:
    import redis

    try:
        redis.Redis(host="127.0.0.1", socket_timeout=1, socket_connect_timeout=1).ping()
    except redis.RedisError:
        return None
    return "redis://127.0.0.1:6379/13"


@contextmanager
def postgres_database() -> Iterator[str]:
    """A database of the test's own, dropped at the end."""
    import psycopg

    server = postgres_url()
    assert server
    name = f"assay_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}")  # type: ignore[call-overload]
        try:
            yield server.removesuffix("postgres") + name
        finally:
            connection.execute(f"drop database {name} with (force)")  # type: ignore[call-overload]


class PrivateRedis:
    """A Redis server of the test's own on a free port, which may be stopped."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder, self.process = folder, None
        self.url = f"redis://127.0.0.1:{self.port}/0"

    process: "subprocess.Popen[bytes] | None"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self.process = subprocess.Popen([*command, "--save", ""], stdout=subprocess.DEVNULL)
        while not answers(self.port):
            assert self.process.poll() is None
            time.sleep(0.02)

    def send(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@contextmanager
def redis_keys(prefix: str) -> Iterator[str]:
    """The URL of a Redis whose keys with this prefix are gone afterwards."""
    import redis

    url = redis_url()
    assert url
    try:
        yield url
    finally:
        client = redis.Redis.from_url(url)
        if keys := list(client.scan_iter(f"{prefix}*")):
            client.delete(*keys)


class PrivatePostgres:
    """A PostgreSQL server of the test's own on a free port, which may be restarted. `programs`: None if absent."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder, self.url = folder, f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @staticmethod
    def programs() -> Path | None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
        return found[-1].parent if found else None

    def program(self, name: str, *options: str) -> None:
        programs = self.programs()
        assert programs
        owner = {"user": "postgres"} if os.geteuid() == 0 else {}  # PostgreSQL does not run as root
        command = [str(programs / name), "-D", str(self.folder), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **owner)  # type: ignore[call-overload]

    def start(self) -> None:
        self.folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.program("initdb", "--username=postgres", "--auth=trust", "--no-sync")
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.program("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def restart(self, mode: str) -> None:
        """`mode`: fast ends sessions; immediate ends processes, as a crash."""
        self.program("pg_ctl", "-w", "-l", str(self.folder / "log"), "-m", mode, "restart")

    def stop(self) -> None:
        if (self.folder / "postmaster.pid").exists():
            self.program("pg_ctl", "-m", "immediate", "stop")
