"""Groups as large as the link domain or the described network, on instances that are sold."""

from typing import Any

import numpy as np
import pytest

from advisor import workload
from advisor.engine.launch import launch
from advisor.engine.search import Question, prepare_question, search
from advisor.engine.search.candidates import admissible, concurrency_of, connected_chips, enumerate_lanes, offers_for
from advisor.engine.search.table import evaluate
from advisor.inputs import catalog_of, take_snapshot, workload_of
from catalog.models import Accelerator, Price
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FLEET = {
    "name": "fleet",
    "model": "deepseek-ai/DeepSeek-R1",
    "traffic": {
        "input_tokens": {"mean": 1500, "p95": 4000},
        "output_tokens": {"mean": 3000, "p95": 9000},
        "requests_per_s": {"mean": 200, "peak": 230},
    },
    "slo": {"ttft_ms_p95": 5000, "tpot_ms_p95": 60},
    "variants": "no",
}


@pytest.fixture(scope="module", autouse=True)
def trays(frozen: None, django_db_blocker: Any) -> None:
    """Trays of an NVL72 rack that are sold joined, and hosts of eight that are."""
    usual = {"region": "us", "term": "on_demand", "kind": "vm", "as_of": TODAY, "source": "sample"}
    rows = [
        ("coreweave", "GB200 NVL72 slice", "gb200", 4, 42),
        ("aws", "p5.48xlarge", "h100-sxm", 8, 32),
        ("gcp", "a3-highgpu-8g", "h100-sxm", 8, 32),
    ]
    with django_db_blocker.unblock():
        for provider, instance, slug, chips, usd in rows:
            Price.objects.create(
                provider=provider, instance=instance, accelerator=Accelerator.objects.get(slug=slug),
                accelerators=chips, usd_per_hour=usd, **usual,
            )  # fmt: skip


def question(chip: str, **constraints: Any) -> Question:
    known = {"accelerators": {"allow": [chip]}, "frameworks": {"allow": ["vllm"]}, "formats": {"allow": ["fp8-block"]}}
    spec = workload.parse({**FLEET, "constraints": {"acquisition": ["rent"], **known, **constraints}})
    snapshot = take_snapshot(spec)
    return prepare_question(Question(workload_of(spec), catalog_of(spec, snapshot)))


def best_per_chip(chip: str) -> dict[int, float]:
    """Expert-parallel size -> the most output tokens/s per chip within the TPOT limit, attention data-parallel."""
    asked = question(chip)
    table = evaluate(asked, enumerate_lanes(asked, admissible(asked)[1])[0])
    best: dict[int, float] = {}
    for i, lane in enumerate(table.lanes):
        c = lane.choice
        if c.tp == 1 and c.ep == c.dp > 1:
            rates = np.where(table.busy_tpot_s[i] <= 0.06, table.capacity_requests_per_s[i], 0.0)
            best[c.ep] = max(best.get(c.ep, 0.0), float(rates.max()) * 3000 / c.ep)
            assert concurrency_of([lane]).max() >= 128 * c.dp
    return best


def test_the_whole_nvlink_domain_serves_more_per_chip_than_a_tray() -> None:
    each = best_per_chip("gb200")
    assert {8, 16, 32, 64} <= set(each)
    assert each[64] > each[16] > each[8]
    assert each[64] > 1.05 * each[8]


def test_experts_span_hosts_over_the_network_of_instances_that_have_one() -> None:
    each = best_per_chip("h100-sxm")
    assert {16, 32, 64} <= set(each) and each[32] > each.get(8, 0.0)
    asked = question("h100-sxm", acquisition=["rent", "own"])
    (chip,) = [a for a in asked.catalog.accelerators if a.slug == "h100-sxm"]
    offers = [o for o in offers_for(asked) if (o.accelerator, o.acquisition) == (chip.slug, "rent")]
    reach = {o.instance: connected_chips(chip, o) for o in offers}
    assert reach["p5.48xlarge"] == 64
    assert reach["a3-highgpu-8g"] == 8 and max(n for n in reach.values() if n < 64) == 8


def test_a_load_that_fills_it_gets_a_large_group_on_whole_trays() -> None:
    asked = question("gb200", formats={"allow": ["nvfp4"]}, quality="any")
    found = search(asked, choice_alone=True).ranked[0]
    c = found.lane.choice
    assert (c.tp, c.dp) == (1, c.ep) and c.ep >= 16
    assert found.offer.accelerators == 4 and found.instances * 4 == found.chips
    started = launch("deepseek-ai/DeepSeek-R1", found, asked.catalog.model, asked.workload)
    words = started["command"].split()
    assert words[words.index("--data-parallel-size") + 1] == str(c.dp)
    assert words[words.index("--nnodes") + 1] == str(c.ep // 4)
    assert {"--enable-expert-parallel", "--all2all-backend"} <= set(words)
    assert f"size: {c.ep // 4}" in started["files"]["kubernetes.yaml"]


def test_tensor_parallel_chips_are_sold_in_slices() -> None:
    asked = question("tpu-v6e", frameworks={"allow": []}, formats={"allow": []}, exclude=[])
    offers = [o for o in offers_for(asked) if o.accelerator == "tpu-v6e"]
    sold = {o.accelerators for o in offers}
    assert sold == {1, 4, 8, 16, 32, 64, 128, 256}  # as Google's list of v6e topologies has them
    (chip,) = [a for a in asked.catalog.accelerators if a.slug == "tpu-v6e"]
    assert all(connected_chips(chip, o) == o.accelerators for o in offers)
