"""What a workload names must exist; the nearest names are offered."""

from datetime import date
from typing import Any

import pytest

from advisor.inputs.check import check_catalog
from advisor.workload.errors import unknown
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from catalog.models import Accelerator, Price, ServedModel

pytestmark = pytest.mark.django_db
GOOD: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2},
}


@pytest.fixture(autouse=True)
def catalog() -> None:
    day = date(2026, 11, 1)
    ServedModel.objects.create(slug="llama-3-1-8b", hf_id="meta-llama/Llama-3.1-8B", shape={}, as_of=day)
    chip = Accelerator.objects.create(
        slug="h100-sxm", name="H100", vendor="nvidia", memory_gib=79.6, memory_gb_per_s=3350, as_of=day
    )
    Price.objects.create(provider="nebius", accelerator=chip, accelerators=8, usd_per_hour=20, region="eu", as_of=day)


def refused(**changes: Any) -> dict[str, dict[str, str]]:
    with pytest.raises(WorkloadError) as caught:
        check_catalog(parse({**GOOD, **changes}))
    return {error["field"]: error for error in caught.value.errors}


def test_known_names_pass() -> None:
    constraints = {
        "accelerators": {"allow": ["h100-sxm"]},
        "vendors": {"allow": ["nvidia"]},
        "providers": {"deny": ["nebius"]},
        "regions": {"allow": ["eu"]},
    }
    check_catalog(parse({**GOOD, "constraints": constraints, "owned": {"h100-sxm": 8}}))
    check_catalog(parse({**GOOD, "model": "llama-3-1-8b"}))


def test_an_unknown_model_offers_the_nearest() -> None:
    assert "did you mean meta-llama/Llama-3.1-8B" in refused(model="Llama-3.1-8b")["model"]["message"]


@pytest.mark.parametrize("kind", ["accelerators", "vendors", "providers", "regions"])
def test_unknown_names_in_constraints_are_named(kind: str) -> None:
    assert f"constraints.{kind}.deny" in refused(constraints={kind: {"deny": ["h10-sxm"]}})


@pytest.mark.parametrize(
    ("typed", "first"), [("a100", "a100-80gb-sxm"), ("H100", "h100-sxm"), ("80gb", "a100-80gb-sxm")]
)
def test_names_that_hold_what_was_typed_come_first(typed: str, first: str) -> None:
    slugs = ["a10", "a100-40gb-pcie", "a100-80gb-sxm", "b100", "gh100", "h10", "h100-sxm", "h200-sxm"]
    (found,) = unknown("owned", [typed], lambda: slugs)
    assert f"did you mean {first}" in found["message"]
    assert found["allowed"].startswith(first) and set(found["allowed"].split(", ")) == set(slugs)


def test_vendors_are_suggested_whatever_their_case() -> None:
    assert (
        "did you mean nvidia?"
        in refused(constraints={"vendors": {"allow": ["Nvidia"]}})["constraints.vendors.allow"]["message"]
    )


def test_a_list_that_is_cut_says_so() -> None:
    (found,) = unknown("owned", ["chip-77"], lambda: [f"chip-{number}x" for number in range(100)])
    assert found["allowed"].startswith("chip-77x, ")
    assert found["allowed"].endswith(", ... (100 in total; see /api/v1/accelerators)")


def test_unknown_chips_that_are_owned_are_named() -> None:
    errors = refused(owned={"h100": 8}, inventory={"x": 1}, tco={"peu": 1.2})
    assert set(errors) == {"owned", "inventory", "tco"}
    assert "did you mean h100-sxm" in errors["owned"]["message"]


def test_paths_are_read_by_the_command_line_alone() -> None:
    asked = {**GOOD, "model": {"config": "/etc/passwd"}}
    with pytest.raises(WorkloadError, match="file paths are not accepted here"):
        check_catalog(parse(asked))
    check_catalog(parse(asked), files=True)
    traced = {**GOOD, "traffic": {**GOOD["traffic"], "input_tokens": {"trace": "../secret.csv"}}}
    with pytest.raises(WorkloadError, match="traffic.input_tokens.trace"):
        check_catalog(parse(traced))
