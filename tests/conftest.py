"""Which services are here, and whether their tests ran."""

import gc
import math
import os
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from django.apps import apps
from django.conf import settings
from django.core.cache import caches
from django.core.management import call_command
from django.db import connection, transaction

from advisor.workload import rules
from catalog import clock
from tests import services
from tests.clocks import TODAY
from tests.world import World

ROOT = Path(__file__).resolve().parents[1]

FOUND = {
    "postgres": services.postgres_url(),
    "redis": services.redis_url(),
    "browser": next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None),
    "node": shutil.which("node") and shutil.which("npm"),
}
os.environ.setdefault("ASSAY_WARM", "0")  # servers that tests start
# A slow machine fails no test. A build must not depend on chance; every other run looks for new examples.
hypothesis.settings.register_profile(
    "any speed",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    max_examples=100 if "ASSAY_FULL_PROPERTIES" in os.environ else 30,  # `make soak` tries the full number
)
hypothesis.settings.load_profile("any speed")
ran: set[str] = set()
missed: dict[str, list[str]] = {name: [] for name in FOUND}


@pytest.fixture(scope="session", autouse=True)
def pinned_day() -> None:
    """Every test runs on the same day, whichever day it is. Tests of the shipped data ask the host's clock."""
    clock.today = lambda: TODAY


WITHOUT_MARGINS: dict[str, Any] = {
    "EXPECTED_CONFIDENCE": None,
    "SURE_CONFIDENCE": None,
    "SPARE_REQUESTS_PER_S": math.inf,
}
WITHOUT_MARGINS |= {"TERMS": rules.TERMS[:1]}
WITH_MARGINS = {name: getattr(rules, name) for name in WITHOUT_MARGINS}


@pytest.fixture(scope="session", autouse=True)
def plain_questions() -> None:
    """Tests of other things ask without the margins and terms of a question that states none (workload.rules)."""
    for name, value in WITHOUT_MARGINS.items():
        setattr(rules, name, value)


@pytest.fixture(autouse=True)
def margins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that are marked `margins` ask as a user does."""
    if request.node.get_closest_marker("margins"):
        for name, value in WITH_MARGINS.items():
            monkeypatch.setattr(rules, name, value)


@pytest.fixture(scope="session", autouse=True)
def strict() -> None:
    """An internal error fails the test instead of leaving out one accelerator."""
    settings.INTERNAL_ERRORS_END_ANSWERS = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of the simulation itself simulate everything anew."""
    from advisor.engine.scheduler import percentiles
    from tests import simulated_once

    percentiles._verified = simulated_once.verified
    simulated_once.off[:] = [True] if ROOT / "tests" / "engine" / "scheduler" in item.path.parents else []


def pytest_report_header() -> list[str]:
    return [f"service {name}: {'found' if where else 'not found'}" for name, where in FOUND.items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out further variants of slow tests, which `make soak` runs, and skips what needs an absent service."""
    if "soak" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        for name, where in FOUND.items():
            if not where and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=f"{name} not found"))


def pytest_collection_finish() -> None:
    """Python would look through all collected tests, again and again, for garbage that is not there."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name in FOUND:
        if name in report.keywords:
            if report.when == "call" and not report.skipped:
                ran.add(name)
            elif report.skipped:
                missed[name].append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a whole run that left out a found service's tests has not tested what it says."""
    config = session.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        config.option.keyword or config.option.markexpr or config.option.collectonly
    )
    if os.environ.get("CI") != "true" or not whole or hasattr(config, "workerinput"):
        return
    for name, where in FOUND.items():
        if where and (name not in ran or missed[name]):
            print(f"\n{name} was found, but its tests did not run: {missed[name] or 'none collected'}", file=sys.stderr)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    used = [f"{name} ({'tests ran' if name in ran else 'found, no test ran'})" for name in FOUND if FOUND[name]]
    absent = [name for name in FOUND if not FOUND[name]]
    terminalreporter.write_line(f"services: {', '.join(used) or 'none'}; not found: {', '.join(absent) or 'none'}")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An engine that answers at once, for tests of what happens around the answer; its functions can be replaced."""
    from advisor import answer, inputs
    from tests import answers

    fake = SimpleNamespace(snapshot=answers.snapshot, recommend=answers.recommend)
    monkeypatch.setattr(inputs, "take_snapshot", lambda *given: fake.snapshot(*given))
    monkeypatch.setattr(answer, "recommend", lambda *given, first_screen=False: fake.recommend(*given))
    monkeypatch.setattr(answer, "verdict_first", answers.in_one_step(lambda *given: fake.recommend(*given)))
    return fake


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The advices for which a message was sent."""
    from advisor import advise

    sent: list[str] = []

    def send(name: str, args: list[str], **options: object) -> None:
        sent.append(args[0])

    monkeypatch.setattr(advise.app, "send_task", send)
    return sent


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of a test never reach the broker of a running service."""
    folder = str(tmp_path_factory.getbasetemp() / "messages")
    os.makedirs(folder, exist_ok=True)
    if not settings.REDIS_URL:
        for key in ("data_folder_in", "data_folder_out", "control_folder"):
            monkeypatch.setitem(settings.CELERY_BROKER_TRANSPORT_OPTIONS, key, folder)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """Rolled-back tables start again with the same keys, which would look like the same state of the catalog."""
    from advisor.web.answers import kept
    from catalog.lists import facets
    from catalog.pricing import derived

    caches["pages"].clear()
    kept.forget()
    derived.current_ids.cache_clear()
    derived.newest_ids.cache_clear()
    facets.clear()


@pytest.fixture(autouse=True)
def no_call_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests call from one address; those about the limits set them."""
    for name in (
        "API_PER_MINUTE_TOKEN",
        "API_PER_MINUTE_ADDRESS",
        "ESTIMATES_PER_MINUTE",
        "QUICK_PER_MINUTE",
        "WORK_PER_MINUTE",
    ):
        monkeypatch.setattr(settings, name, 0)


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path | None:
    """The tests' database; returns a copy of it in a file before any test writes to it, or None.

    None: it is not SQLite, or no selected test uses it; then the connection is that of the settings.
    """
    with django_db_blocker.unblock():
        if connection.vendor != "sqlite" or not connection.is_in_memory_db():
            return None
        connection.ensure_connection()
        copy = tmp_path_factory.mktemp("fresh") / "db"
        with closing(sqlite3.connect(copy)) as target:
            connection.connection.backup(target)
        return copy


@pytest.fixture(scope="session")
def migrated(django_db_setup: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with every migration applied, to be copied."""
    if django_db_setup is not None:
        return django_db_setup
    folder = tmp_path_factory.mktemp("migrated")
    World(folder, f"sqlite:///{folder}/db").python("manage.py", "migrate", "-v0")
    return folder / "db"


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, migrated: Path) -> Iterator[World]:
    """Its own service on the databases and brokers of `request.param`, files by default."""
    kind = getattr(request, "param", "sqlite files")
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/db"
        if "postgres" in kind:
            url = stack.enter_context(services.postgres_database())
        else:
            shutil.copy(migrated, tmp_path / "db")
        prefix = f"assay-test-{uuid.uuid4().hex}:"
        redis_url = stack.enter_context(services.redis_keys(prefix)) if "redis" in kind else ""
        world = World(tmp_path, url, redis_url, prefix)
        stack.callback(world.end)
        if "postgres" in kind:
            world.python("manage.py", "migrate", "-v0")
        yield world


LOADED: dict[tuple[Path, bool], dict[str, list[tuple[Any, ...]]]] = {}  # rows of each table, without and with scores
SHIPPED = Path(os.environ.get("ASSAY_TEST_FIXTURES", ROOT / "fixtures"))  # tests/later.py gives other prices
FROZEN = ROOT / "tests" / "frozen_catalog"


def load_once(directory: Path, scores: bool = False) -> None:
    """Loads a catalog, the second time from the rows that the first time left."""
    tables = [model._meta.db_table for model in apps.get_app_config("catalog").get_models()]
    with connection.cursor() as cursor:
        if (directory, scores) not in LOADED:
            call_command("load_catalog", directory, verbosity=0, no_scores=not scores)
            rows = {}
            for table in tables:
                cursor.execute(f"select * from {table}")
                rows[table] = cursor.fetchall()
            LOADED[directory, scores] = rows
            return
        for table in tables:
            cursor.execute(f"delete from {table}")
        for table, kept in LOADED[directory, scores].items():
            if kept:
                places = ", ".join(["%s"] * len(kept[0]))
                cursor.executemany(f"insert into {table} values ({places})", kept)


@pytest.fixture(scope="module")
def frozen(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The frozen catalog for all tests of a module, which only read it: for tests of behavior."""
    with django_db_blocker.unblock(), transaction.atomic():
        load_once(FROZEN)
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def shipped(request: Any, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The shipped catalog for all tests of a module, which only read it: for tests of its data, never of winners.

    Nine thousand scored rows take most of its time: a module that reads them sets SCORES = True.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        load_once(SHIPPED, getattr(request.module, "SCORES", False))
        yield
        transaction.set_rollback(True)
