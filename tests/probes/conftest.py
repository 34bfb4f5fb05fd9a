import itertools
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from advisor.celery import app
from catalog.models import Accelerator
from tests import clocks


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """No message leaves a test; what would have been sent."""
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args=(), **options: sent.append((name, list(args))))
    cache.clear()
    return sent


@pytest.fixture
def h200(db: None) -> Accelerator:
    return make_h200()


def make_h200() -> Accelerator:
    return Accelerator.objects.create(
        slug="h200-sxm", name="H200 SXM 141GB", vendor="nvidia", family="hopper", kind="gpu", memory_gib=140.4,
        memory_gb_per_s=4800, dense_tflops={"bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "fp32": 67, "tf32": 494.7},
        cores=132, sram_mib=50, pcie_gb_per_s=63, tdp_watts=700, as_of="2026-11-21", form_factor="SXM5",
        links=[{"name": "NVLink4", "gb_per_s": 450, "chips": 8}],
    )  # fmt: skip


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Moves the server's clock forward; every reading also passes a microsecond."""
    moved, real, tick = [0.0], timezone.now, itertools.count()

    def read() -> datetime:
        return real() + timedelta(seconds=moved[0], microseconds=next(tick))

    monkeypatch.setattr(timezone, "now", read)
    clocks.set_database(monkeypatch, read)

    def forward(seconds: float) -> None:
        moved[0] += seconds

    yield forward
