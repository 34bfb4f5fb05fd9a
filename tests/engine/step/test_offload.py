"""A cache in the host's memory: prefill saved against the time of its load, by hand; without a figure, no estimate."""

from dataclasses import replace

import pytest

from advisor.engine.optimisation.plan import (
    Setup,
    SetupEstimate,
    Step,
    estimate_setups,
    host_copies_s,
    optimisation_plan,
    planned,
)
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.search.table import demand_of
from advisor.engine.step.kv_offload import HostCopy, copies_s
from advisor.engine.step.lane import lanes
from advisor.engine.terms.workloads.workload import Workload
from tests.engine.catalog_sample import LLAMA_8B, VLLM, catalog, question, software

COPIES = HostCopy(rate_fraction=0.8, source="sample")
WORLD = catalog(host_copy=COPIES, frameworks=(replace(VLLM, features=("prefix_caching",)),))
ASKED = question(prefix_cache_hit_fraction=0.3, host_cache_hit_fraction=0.4)


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(ASKED, WORLD)).ranked[0]


def step(asked: Workload, world: Catalog, s: Scored) -> Step:
    plan = optimisation_plan(Question(asked, world), s)
    assert plan is not None
    return next(x for x in plan.steps if x.technique.slug == "cache_offload")


def figure(setup: Setup, asked: Workload = ASKED) -> SetupEstimate:
    return estimate_setups(asked, WORLD.model, [setup])[0]


def test_seconds_by_hand() -> None:
    """8 GB of cache, 40 % of it from the host at 50 GB/s; 30 % is on the chip, so 30 % is written."""
    assert copies_s(8e9, 0.4, 0.3, 50e9) == pytest.approx((0.064, 0.048))


def test_the_cache_of_a_prompt_is_what_its_layers_keep(best: Scored) -> None:
    """Llama 8B: 2 x 32 layers x 8 heads x 128 x 2 bytes a token, split over the chips of a replica."""
    setup = replace(planned(ASKED, best), host_cached_fraction=0.4, host_bytes_per_s=50e9)
    c = setup.lane.choice
    setup = replace(setup, lane=replace(setup.lane, choice=replace(c, kv_dtype="bf16")))
    load_s, _ = host_copies_s(ASKED, setup, lanes(LLAMA_8B, [setup.lane]), 0)
    by_hand = 2 * 32 * 8 * 128 * 2 * ASKED.input_tokens.mean_tokens * 0.4 / c.tp / 50e9
    assert load_s == pytest.approx(by_hand, rel=0.02)  # whole blocks


def test_it_is_one_field_of_the_plan_and_helps_where_prefill_costs_more_than_the_load(best: Scored) -> None:
    found = step(ASKED, WORLD, best)
    assert found.state == "possible" and found.estimate is not None and found.gain_ratio > 1.0
    own, now = planned(ASKED, best), found.estimate.setup
    assert replace(now, host_cached_fraction=0.0, host_bytes_per_s=own.host_bytes_per_s) == own
    link = best.lane.choice.accelerator.pcie_bytes_per_s * COPIES.rate_fraction
    assert now.host_bytes_per_s == link and "40%" in found.change


def test_an_endless_link_equals_a_larger_prefix_cache(best: Scored) -> None:
    own = planned(ASKED, best)
    endless = figure(replace(own, host_cached_fraction=0.4))
    larger = figure(replace(own, cached_fraction=own.cached_fraction + 0.4))
    assert endless.output_tokens_per_s_per_chip == pytest.approx(larger.output_tokens_per_s_per_chip)


def test_a_slow_link_is_what_a_lane_waits_for(best: Scored) -> None:
    own = planned(ASKED, best)
    slow = replace(own, host_cached_fraction=0.4, host_bytes_per_s=1e6)
    load_s, keep_s = host_copies_s(ASKED, slow, lanes(LLAMA_8B, [slow.lane]), 0)
    most = demand_of(ASKED).output_tokens / max(load_s, keep_s)
    assert figure(slow).output_tokens_per_s_per_chip * slow.lane.choice.tp <= most * 1.0001
    assert figure(slow).output_tokens_per_s_per_chip < figure(own).output_tokens_per_s_per_chip


@pytest.mark.parametrize(
    ("asked", "world", "said"),
    [
        (replace(ASKED, host_cache_hit_fraction=None), WORLD, "needs traffic.host_cache_hit_rate"),
        (replace(ASKED, host_cache_hit_fraction=0.0), WORLD, "no hits in host memory"),
        (ASKED, replace(WORLD, host_copy=None), "bandwidth between this chip and host memory"),
    ],
)
def test_without_a_figure_it_is_cited_and_enters_no_sum(
    asked: Workload, world: Catalog, said: str, best: Scored
) -> None:
    found = step(asked, world, best)
    assert found.state == "cited" and found.estimate is None and said in found.change


def test_a_framework_that_is_not_known_to_do_it_is_named(best: Scored) -> None:
    other = replace(best.lane.framework, slug="tgi", name="TGI", **software("tgi"))
    found = step(ASKED, WORLD, replace(best, lane=replace(best.lane, framework=other)))
    assert found.state == "cited" and "TGI" in found.change and "no known option" in found.change
