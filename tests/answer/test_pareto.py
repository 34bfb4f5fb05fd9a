"""The points of the price-speed chart: the front of those that are ranked, each with its option's figures."""

from typing import Any

import pytest

from advisor import workload
from advisor.answer.pareto import frontier
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import Answer, ParetoPoint
from tests.as_json import recommend

FIGURES = {
    "usd_per_mtok_output": "usd_per_mtok_output",
    "usd_per_mtok_blended": "usd_per_mtok_blended",
    "usd_per_month": "usd_per_month",
    "watts": "watts",
    "kgco2e_per_mtok": "kgco2e_per_mtok",
    "tpot_ms": "tpot_ms.p95",
    "ttft_ms": "ttft_ms.p95",
}


def point(tpot_ms: float, usd: float | None, **more: Any) -> ParetoPoint:
    known: dict[str, Any] = {
        "label": "x", "accelerator": "x", "accelerator_count": 1, "output_tokens_per_s_per_user": None, "rank": None,
        "frontier": False, "meets_slo": True, "simulated": False,
    }  # fmt: skip
    return ParetoPoint.read({**known, "tpot_ms": tpot_ms, "usd_per_mtok_output": usd, **more})


def test_a_point_that_another_beats_on_both_axes_is_not_on_the_frontier() -> None:
    points = [point(10, 9, rank=1), point(20, 4, rank=2), point(30, 6, rank=3), point(10, 9, rank=4)]
    assert frontier(points) == {0, 1}


def test_estimates_count_only_where_nothing_is_ranked() -> None:
    better = point(1, 1)
    assert frontier([better, point(20, 4, rank=1)]) == {1}
    assert frontier([better, point(20, 4), point(0.5, 0.5, meets_slo=False)]) == {0}
    assert frontier([point(20, 4, meets_slo=False), point(1, None)]) == {0}


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_ranked_point_has_the_figures_of_its_option() -> None:
    asked = workload.parse(
        {
            "name": "small",
            "model": "meta-llama/Llama-3.1-8B",
            "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 1},
            "constraints": {
                "accelerators": {"allow": ["l40s"]},
                "frameworks": {"allow": ["vllm"]},
                "formats": {"allow": ["fp8"]},
                "acquisition": ["rent"],
            },
            "variants": "no",
        }
    )
    answer = Answer.read(recommend(asked, take_snapshot(asked)))
    option = answer.deployments[0]
    (ranked,) = [each for each in answer.pareto if each.rank == 1]
    assert {name: ranked.figure(name) for name in FIGURES} == {n: option.figure(path) for n, path in FIGURES.items()}
    at_capacity = option.output_tokens_per_s_at_capacity
    assert at_capacity is not None
    found = ranked.output_tokens_per_s_per_accelerator_at_capacity
    assert found == pytest.approx(at_capacity / option.accelerator_count, rel=1e-4)
    estimates = [each for each in answer.pareto if not each.simulated]
    assert estimates and all(each.usd_per_month and each.watts and each.ttft_ms for each in estimates)
