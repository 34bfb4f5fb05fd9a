from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings

from advisor.models import Study
from advisor.studies import compute, pieces
from catalog.models import default_organisation
from tests.studies import sample


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The messages that were sent and not yet received."""
    sent: list[list[Any]] = []
    monkeypatch.setattr(pieces.app, "send_task", lambda name, args, **options: sent.append(args))
    return sent


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Pieces that compute at once. `answer` gives the values of a point's row, and counts the points in `computed`."""
    fake = SimpleNamespace(
        computed=[], answer=lambda point: {"workload": point["asked"].get("name", ""), "feasible": True}
    )

    def answered(piece: Any, point: Any, check: Callable[[], None]) -> Any:
        fake.computed.append(point["index"])
        check()
        return fake.answer(point)

    monkeypatch.setattr(compute, "answered", answered)
    monkeypatch.setattr(compute, "read_rows", lambda piece: [])
    return fake


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch, messages: list[list[Any]]) -> Callable[..., Study]:
    """Creates a study of small workloads whose names are not looked up in a catalog."""
    monkeypatch.setattr(settings, "STUDY_MAX_OPEN_PERSON", 50)
    monkeypatch.setattr("advisor.inputs.check_catalog", lambda *given, **named: None)
    monkeypatch.setattr("advisor.inputs.with_catalog_names", lambda spec, organisation=None: dict(spec))

    def create(count: int = 3, by: str = "ada", owner: Any = None, **given: Any) -> Study:
        return pieces.request(sample.workloads(count), owner or default_organisation(), by, **given)

    return create
