"""The speed of hosts as an assumption: in the catalog, in a workload, and in estimates."""

from pathlib import Path

import pytest

from advisor import workload
from advisor.answer.estimates import single_estimate
from advisor.engine.search import efficiency_on
from advisor.engine.terms import efficiency
from advisor.inputs import catalog_of, catalog_resources
from advisor.inputs.from_catalog import take_snapshot
from advisor.workload import WorkloadError, deployment
from catalog.models import Calibration
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
ASKED = {
    "model": "meta-llama/Llama-3.1-8B", "accelerator": "h200-sxm", "tp": 4, "weights": "bf16", "framework": "vllm",
    "framework_version": "0.24.0", "isl": 1024, "osl": 256, "concurrency": 64,
}  # fmt: skip


def probed(factor: float) -> None:
    Calibration.objects.create(
        name="accelerator:l40s", values={"host_factor": factor}, basis="datasheet", fitted_on="probe result 1",
        engine_version="1", as_of="2026-11-25",
    )  # fmt: skip


def factors(**tco: float) -> dict[str, float]:
    raw = workload.load(FILE.read_bytes())
    for key, value in tco.items():
        raw = workload.set_path(raw, f"tco.{key.replace('_', '-')}", str(value))
    spec = workload.parse(raw)
    catalog = catalog_of(spec, take_snapshot(spec))
    return {a.slug: efficiency_on(catalog.scopes, a).host_factor for a in catalog.accelerators}


def test_a_probe_beats_the_default_and_the_workload_beats_both() -> None:
    probed(1.5)
    usual, own = factors(), factors(host_speed_ratio=2.0)
    assert (usual["l40s"], usual["l4"]) == (1.5, 1.0) and (own["l40s"], own["l4"]) == (2.0, 2.0)
    known = catalog_resources([])
    assert efficiency(known.scopes, "l40s", "ada", "gpu").host_factor == 1.5


def test_an_answer_states_the_assumption_with_its_range_and_uses_it() -> None:
    raw = workload.set_path(workload.load(FILE.read_bytes()), "constraints.accelerators.allow", "[l40s]")
    spec = workload.parse(workload.set_path(raw, "tco.host-speed-ratio", "2"))
    answer = recommend(spec, take_snapshot(spec))
    stated = next(a for a in answer["assumptions"] if a["name"] == "host-speed-ratio")
    assert (stated["value"], stated["default"], stated["low"], stated["high"]) == (2, 1, 0.6, 2)
    assert not [u for u in answer["not_used"] if "host-speed" in str(u)]


def test_a_slow_host_serves_fewer_tokens_and_the_factor_has_bounds() -> None:
    rates = [
        single_estimate.answer(deployment.parse_deployment({**ASKED, "host_speed_ratio": r})).output_tokens_per_s
        for r in (0.6, 1.0, 2.0)
    ]
    plain = single_estimate.answer(deployment.parse_deployment(ASKED)).output_tokens_per_s
    assert rates[0] > rates[1] > rates[2] and plain == rates[1]
    assert rates[2] < 0.8 * rates[1]  # measured: 35 % less on a machine whose host takes twice as long
    with pytest.raises(WorkloadError, match="host_speed_ratio"):
        deployment.parse_deployment({**ASKED, "host_speed_ratio": 20})


def warnings(**changes: object) -> str:
    return " ".join(single_estimate.answer(deployment.parse_deployment({**ASKED, **changes})).warnings)


def test_an_estimate_that_the_host_limits_says_how_far_it_depends_on_the_host() -> None:
    assert "the host limits throughput: about" in warnings()
    assert "host" not in warnings(tp=1) and "host limits" not in warnings(host_speed_ratio=1.0)
    Calibration.objects.create(
        name="accelerator:h200-sxm", values={"host_factor": 1.2}, basis="measured", fitted_on="probe result 1",
        engine_version="1", as_of="2026-11-25",
    )  # fmt: skip
    assert "host limits" not in warnings()  # it is measured
