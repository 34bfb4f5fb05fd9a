"""How fast are pages and REST lists, with the whole catalog, as the service is deployed?

    python -m tests.load.bench_web [--write-docs docs/reference/web-performance.md]

Starts gunicorn with two processes on a catalog of its own and asks it over HTTP: each page type alone (server time),
then 8 connections at once (requests per second). The clients keep cookies, as browsers do. They run on the same machine
and share its cores. Rate limits are off. "New" asks for a page that was not asked before; "kept" asks for the same page
again. Takes about two minutes.
"""

import argparse
import gzip
import http.client
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from advisor.ops.supervise import free_port, web_command

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS, SECONDS, REPEATS = 8, 5.0, 40
WARM_S = 5.0  # both processes load what first pages need in the background
ASK = """
import django; django.setup()
from advisor import advise
from advisor.web import forms
a = advise.request(forms.preset("support-chat")); advise.run(a.pk); print(a.pk)
"""
SECTIONS = ("why", "performance", "cost", "run", "confidence", "alternatives", "all")
ANSWERS_LISTED = 50
COPY = """
import uuid, django; django.setup()
from advisor.models import Advice
a = Advice.objects.get(pk=%r); options = list(a.options.filter(rank__lte=3))
for _ in range(%d):
    a.pk, a._state.adding = uuid.uuid4(), True
    a.save()
    for each in options:
        each.pk, each.advice = None, a
        each.save()
"""
LISTS = ("accelerators", "prices", "models", "api-prices", "frameworks", "units", "regions", "quantizations")
TARGETS = {"page_median_ms": 60, "page_p95_ms": 100, "lists_per_s": 300, "pages_per_s": 60, "first_load_kb": 150}


@dataclass
class Timed:
    """Answers of one page type."""

    name: str
    paths: tuple[str, ...]
    times_ms: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0  # of the server's processes, mean
    body_kb: float = 0.0
    sent_kb: float = 0.0

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)

    @property
    def p95_ms(self) -> float:
        return sorted(self.times_ms)[int(0.95 * (len(self.times_ms) - 1))]


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port, self.connection = port, http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.cookies: dict[str, str] = {}

    def get(self, path: str, etag: str = "") -> tuple[int, dict[str, str], bytes]:
        headers = {"Accept-Encoding": "gzip"} | ({"If-None-Match": etag} if etag else {})
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        for attempt in (1, 2):
            try:
                self.connection.request("GET", path, headers=headers)
                response = self.connection.getresponse()
                for given in response.headers.get_all("Set-Cookie", []):
                    name, _, value = given.partition(";")[0].partition("=")
                    self.cookies[name] = value
                return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.connection.close()  # the server ended an idle connection
                if attempt == 2:
                    raise
        raise AssertionError


@contextmanager
def service() -> Iterator[tuple[int, str, int]]:
    """A running service with the shipped catalog and one answer: (port, ID of the answer, ID of the process)."""
    with tempfile.TemporaryDirectory() as folder:
        limits = {name: "0" for name in ("ASSAY_API_PER_MINUTE_TOKEN", "ASSAY_API_PER_MINUTE_ADDRESS")}
        os.environ.update({"ASSAY_VAR": folder, "DJANGO_SETTINGS_MODULE": "advisor.settings", **limits})
        for command in (["migrate", "-v0"], ["load_catalog", "-v0"]):
            subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        asked = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, check=True, capture_output=True, text=True)
        answer = asked.stdout.split()[-1]
        subprocess.run([sys.executable, "-c", COPY % (answer, ANSWERS_LISTED)], cwd=ROOT, check=True)
        port = free_port("127.0.0.1")
        server = subprocess.Popen([sys.executable, "-m", *web_command("127.0.0.1", port, 2)], cwd=ROOT)
        try:
            wait_for(port)
            time.sleep(WARM_S)
            yield port, answer, server.pid
        finally:
            server.terminate()
            server.wait()


def wait_for(port: int) -> None:
    while True:
        try:
            Client(port).get("/healthz")
            return
        except OSError:
            time.sleep(0.1)


def page_types(answer: str) -> list[Timed]:
    """Each type of page with addresses of that type; lists with ever new filters."""
    chips = ("h100-sxm", "h200-sxm", "b200", "mi300x", "tpu-v5p", "a100-80gb-sxm", "b300")
    years = tuple(f"/catalog/accelerators?rows={n}" for n in range(20, 60))
    searches = tuple(f"/catalog/prices?rows={n}" for n in range(20, 60))
    return [
        Timed("form", ("/", "/?preset=support-chat", f"/?from={answer}")),
        *(Timed(f"answer: {name}", (f"/advice/{answer}?section={name}",)) for name in SECTIONS),
        *(
            Timed(f"option: {name}", tuple(f"/advice/{answer}/options/{rank}?section={name}" for rank in (1, 2, 3)))
            for name in SECTIONS
        ),
        Timed("comparison of options", (f"/advice/compare?item={answer}:1&item={answer}:2",)),
        Timed("what-if, as asked", (f"/advice/{answer}/what-if",)),
        Timed("document", (f"/advice/{answer}/documents/memo.html",)),
        Timed(f"list of {ANSWERS_LISTED + 1} answers", ("/advice",)),
        Timed("catalog lists, kept", tuple(f"/catalog/{name}" for name in LISTS)),
        Timed("list of accelerators, new", years),
        Timed("list of prices, new", searches),
        Timed("accelerator", tuple(f"/catalog/accelerators/{slug}" for slug in chips)),
        Timed("comparison of accelerators", ("/catalog/compare?a=h100-sxm&a=mi300x",)),
        Timed("price index", ("/catalog/prices/index",)),
        Timed("accuracy", ("/fidelity",)),
        Timed("machines", ("/workers",)),
    ]


def cpu_s(parent: int) -> float:
    """CPU seconds of a process and its children; 0 where the system has no /proc."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if parent in (int(values[1]), int(file.parent.name)):
            ticks += int(values[11]) + int(values[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ask_in_turn(port: int, types: Sequence[Timed], server: int) -> None:
    client = Client(port)
    for each in types:
        before, count = cpu_s(server), max(REPEATS, len(each.paths))
        for n in range(count):
            started = time.perf_counter()
            status, headers, body = client.get(each.paths[n % len(each.paths)])
            each.times_ms.append((time.perf_counter() - started) * 1e3)
            if status != 200:
                raise SystemExit(f"{each.paths[n % len(each.paths)]}: {status}")
            whole = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
            each.sent_kb, each.body_kb = max(each.sent_kb, len(body) / 1e3), max(each.body_kb, len(whole) / 1e3)
        each.cpu_ms = (cpu_s(server) - before) / count * 1e3


def requests_per_s(port: int, paths: Sequence[str], conditional: bool = False) -> tuple[float, float, float]:
    """8 connections for a few seconds: requests per second, median and 99th percentile of the time in ms."""
    times: list[float] = []
    stop = time.perf_counter() + SECONDS

    def work(offset: int) -> None:
        client, n, etags = Client(port), offset, {}
        while (started := time.perf_counter()) < stop:
            path = paths[n % len(paths)]
            status, headers, _ = client.get(path, etags.get(path, ""))
            if status not in (200, 304):
                raise SystemExit(f"{path}: {status}")
            if conditional:
                etags[path] = headers["etag"]
            times.append((time.perf_counter() - started) * 1e3)
            n += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    return len(times) / SECONDS, statistics.median(times), times[int(0.99 * (len(times) - 1))]


def first_load(port: int, path: str) -> dict[str, float]:
    """Compressed kB of a page and of everything that it names in its head."""
    client = Client(port)
    _, _, body = client.get(path)
    page = gzip.decompress(body).decode()
    named = re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js|svg))"', page)
    sizes = {path: len(body) / 1e3}
    for address in dict.fromkeys(named):
        _, headers, content = client.get(address)
        packed = content if headers.get("content-encoding") else gzip.compress(content)
        sizes[address] = len(packed) / 1e3
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-docs", type=Path)
    options = parser.parse_args()
    with service() as (port, answer, server):
        types = page_types(answer)
        ask_in_turn(port, types, server)
        lists = [f"/api/v1/{name}" for name in LISTS]
        pages = [f"/catalog/{name}" for name in LISTS]
        loads = [
            ("REST lists", requests_per_s(port, lists)),
            ("REST lists, unchanged (304)", requests_per_s(port, lists, conditional=True)),
            ("catalog pages", requests_per_s(port, pages)),
            ("catalog pages, unchanged (304)", requests_per_s(port, pages, conditional=True)),
            ("answer pages", requests_per_s(port, [f"/advice/{answer}"])),
        ]
        first = {path: first_load(port, path) for path in ("/", f"/advice/{answer}", "/catalog/accelerators")}
    text = report(types, loads, first, answer)
    print(text)
    if options.write_docs:
        options.write_docs.write_text(text)


def report(
    types: Sequence[Timed],
    loads: Sequence[tuple[str, tuple[float, float, float]]],
    first: dict[str, dict[str, float]],
    answer: str,
) -> str:
    rows = [
        f"| {t.name} | {t.median_ms:.0f} | {t.p95_ms:.0f} | {t.cpu_ms:.0f} | {t.body_kb:.0f} | {t.sent_kb:.0f} |"
        for t in types
    ]
    rates = [f"| {name} | {rate:.0f} | {median:.0f} | {p99:.0f} |" for name, (rate, median, p99) in loads]
    sizes = [
        f"| {path.replace(answer, 'ID')} | {sum(parts.values()):.0f} | {len(parts)} |" for path, parts in first.items()
    ]
    slow = [t.name for t in types if t.median_ms > TARGETS["page_median_ms"] or t.p95_ms > TARGETS["page_p95_ms"]]
    missed = f"Over 60 ms (median) or 100 ms (p95): {', '.join(slow)}." if slow else "All within 60 ms and 100 ms."
    return "\n".join([
        "# Page and API speed", "", "How fast are the pages and the REST lists with the whole catalog?", "",
        "Generated by `python -m tests.load.bench_web --write-docs docs/reference/web-performance.md`; do not edit.",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores ({platform.machine()}): gunicorn with two",
        "processes, SQLite, rate limits off. The clients share the cores.", "",
        "## Server time", "",
        f"One request at a time, {REPEATS} of each type, over HTTP. Target: median 60 ms, p95 100 ms. {missed}", "",
        "| page | median ms | p95 ms | CPU ms | HTML kB | sent kB |", "|---|---:|---:|---:|---:|---:|", *rows, "",
        "CPU: mean of the server's processes. Catalog pages and REST lists are rendered once for each state of the",
        "catalog (*kept*), and the sections of an answer once, because a finished answer never changes. The p95",
        "includes the first request to each process. *New* asks for a page that was not asked before.", "",
        "## Requests per second", "",
        f"{CONNECTIONS} connections for {SECONDS:.0f} s. Target: 300 lists and 60 pages per second.", "",
        "| requests | per second | median ms | p99 ms |", "|---|---:|---:|---:|", *rates, "",
        "## First load", "",
        "Compressed size of the page, its style sheets, scripts and icon, without the chart library, which loads",
        "later. Target: 150 kB.", "",
        "| page | kB | requests |", "|---|---:|---:|", *sizes, "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
