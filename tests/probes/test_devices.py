"""Which chip of the catalog a device is: what its name and memory say, and when a person's word is taken."""

from typing import Any

import pytest

from catalog.models import Accelerator
from probes.machines import devices
from tests.probes import samples

pytestmark = pytest.mark.django_db
GIB = 2**30


def chip(slug: str, kind: str, vendor: str, name: str, memory_gib: float) -> None:
    Accelerator.objects.create(
        slug=slug, kind=kind, vendor=vendor, name=name, memory_gib=memory_gib, memory_gb_per_s=600, family="f",
        dense_tflops={"bf16": 100}, as_of="2026-01-01",
    )  # fmt: skip


@pytest.fixture(autouse=True)
def catalog(h200: Accelerator) -> None:
    chip("xeon-x", "cpu", "intel", "Xeon X (56c)", 4096)
    chip("epyc-y", "cpu", "amd", "EPYC Y", 6144)
    chip("tpu-v5e", "tpu", "google", "TPU v5e", 16)


CASES: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("a GPU by itself", samples.H200, None, "h200-sxm"),
    ("a GPU as named", samples.H200, "h200-sxm", "h200-sxm"),
    ("a GPU is no CPU", {"name": "AMD Instinct MI300X", "memory_bytes": 192 * GIB}, "epyc-y", None),
    ("a virtual CPU says nothing", {"name": "Intel(R) Xeon(R) Processor", "memory_bytes": 24 * GIB}, None, None),
    ("a virtual CPU as named", {"name": "Intel(R) Xeon(R) Processor", "memory_bytes": 24 * GIB}, "xeon-x", "xeon-x"),
    ("a CPU of another maker", {"name": "Intel(R) Xeon(R) Processor", "memory_bytes": 24 * GIB}, "epyc-y", None),
    ("more memory than any such host", {"name": "Intel Xeon", "memory_bytes": 9000 * GIB}, "xeon-x", None),
    ("a TPU as jax names it", {"name": "TPU v5 lite", "memory_bytes": 16 * GIB}, "tpu-v5e", "tpu-v5e"),
    ("a TPU of another size", {"name": "TPU v5 lite", "memory_bytes": 32 * GIB}, "tpu-v5e", None),
    ("a chip that is not there", samples.H200, "h300", None),
]


@pytest.mark.parametrize(("device", "named", "slug"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_device_is_the_chip_that_it_can_be(device: dict[str, Any], named: str | None, slug: str | None) -> None:
    assert devices.slug_of(device, named) == slug
