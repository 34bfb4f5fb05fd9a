"""A workload with rare requests is answered with what runs on demand, with its cold start."""

from functools import cache
from typing import Any

import pytest

from advisor import report, workload
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import Answer
from catalog.models import Accelerator, Price
from tests.as_json import recommend
from tests.clocks import TODAY
from tests.conftest import FROZEN

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
KEPT = {"l4": 0.80, "l40s": 1.95}  # USD an hour while a container runs
CHIPS = sorted(path.stem for path in (FROZEN / "accelerators").glob("*.yaml"))


@pytest.fixture(scope="module", autouse=True)
def containers(frozen: None, django_db_blocker: Any) -> None:
    """A seller of containers that are billed by the second."""
    with django_db_blocker.unblock():
        for slug, usd in KEPT.items():
            Price.objects.create(
                provider="modal", instance=slug, accelerator=Accelerator.objects.get(slug=slug), accelerators=1,
                region="any", term="on_demand", kind="serverless", usd_per_hour=usd, as_of=TODAY, source="sample",
            )  # fmt: skip


@cache
def answered(*changes: tuple[str, str]) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "name": "rare",
        "model": "meta-llama/Llama-3.1-8B",
        "traffic": {"input_tokens": 1000, "output_tokens": 300, "requests_per_s": 0.0005},
        "constraints": {
            "accelerators": {"deny": [chip for chip in CHIPS if chip not in KEPT]},
            "acquisition": ["rent"],
            "frameworks": {"allow": ["vllm"]},
        },
        "variants": "no",
    }
    for path, value in changes:
        raw = workload.set_path(raw, path, value)
    spec = workload.parse(raw)
    return recommend(spec, take_snapshot(spec))


def test_rare_requests_are_served_on_demand_with_the_cold_start_in_the_latency() -> None:
    found = answered()
    first, second = found["recommendations"][0], next(r for r in found["recommendations"] if "scale_to_zero" not in r)
    zero = first["scale_to_zero"]
    assert first["term"] == "scale_to_zero" and first["usd_per_month"] < 0.6 * second["usd_per_month"]
    assert zero["cold_start_s"] == pytest.approx(zero["container_s"] + zero["weights_s"] + zero["engine_s"])
    assert 2 < zero["weights_s"] < 9  # 5 to 16 GB at 2 GB/s
    assert zero["waiting_fraction"] > zero["cold_fraction"] > 0.9  # a request every 33 minutes, up for 1 after one
    assert first["ttft_ms"]["p95"] > zero["wait_p95_s"] * 1e3 > 0.8 * zero["cold_start_s"] * 1e3
    assert zero["billed_fraction"] == pytest.approx(zero["billed_s_per_month"] / (730 * 3600), rel=1e-4)
    assert found["views"]["cheapest"] == 1 and "wait" in found["verdict"] and "a month" in found["verdict"]
    assert [r["rank"] for r in found["recommendations"]] == list(range(1, len(found["recommendations"]) + 1))
    assert Answer.read(found).to_json() == found
    assert "scale to zero" in report.table(Answer.read(found))


def test_with_hosted_apis_allowed_a_token_price_wins_over_a_gpu_that_runs_all_month() -> None:
    apis = ("constraints.acquisition", "[rent, api]"), ("constraints.frameworks.allow", "[]")
    found = answered(*apis)
    kinds = ["api" if r["acquisition"] == "api" else r["term"] for r in found["recommendations"]]
    assert kinds[0] == "api" and kinds.index("scale_to_zero") < kinds.index("on_demand")
    assert found["recommendations"][0]["usd_per_month"] < 1
    often = answered(*apis, ("traffic.requests_per_s", "0.005"))
    first = often["recommendations"][0]
    assert first["acquisition"] == "api" and 10 * first["usd_per_month"] < min(
        r["usd_per_month"] for r in often["recommendations"] if r["acquisition"] != "api"
    )


def test_a_strict_ttft_limit_rejects_the_cold_start_and_says_what_would_pass() -> None:
    found = answered(("slo.ttft_ms_p95", "2000"))
    assert all("scale_to_zero" not in r for r in found["recommendations"])
    why = found["scale_to_zero"]
    assert why["reason"] == "misses_slo" and why["limit"] == 2000 and why["reached"] > 30_000
    assert "wait" in why["detail"] and why["change"] == {"slo.ttft_ms_p95": int(why["reached"]) + 1}
    passing = answered(("slo.ttft_ms_p95", str(why["change"]["slo.ttft_ms_p95"])))
    assert any("scale_to_zero" in r for r in passing["recommendations"])


def test_steady_traffic_is_not_scaled_to_zero() -> None:
    found = answered(("traffic.requests_per_s", "1"))
    assert found.get("scale_to_zero") is None and all("scale_to_zero" not in r for r in found["recommendations"])
