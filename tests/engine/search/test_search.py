"""What a search answers: every chip once, what it promises holds, and it finds what a loop over single plans finds."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler.closed_form import closed_loop, open_loop
from advisor.engine.scheduler.percentiles import scheduler_of
from advisor.engine.search import Question
from advisor.engine.search.candidates import CONCURRENCY, admissible, enumerate_lanes
from advisor.engine.search.objective import Scale, final_score, table_scores
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.simulated import Design, Simulations
from advisor.engine.search.table import demand_of, evaluate
from advisor.engine.search.views import add_view_winners, best_per_accelerator
from advisor.engine.step.lane import lanes
from advisor.engine.terms.workloads.workload import Constraints, Lengths, Slo
from tests.engine.catalog_sample import LLAMA_70B, VLLM, catalog, offer, question

HARD = question(slo=Slo(ttft_p95_s=0.05, tpot_p95_s=0.0018))


def rejected(answer: SearchResult) -> dict[str, str]:
    return {r.accelerator: r.reason for r in answer.rejections}


def text(answer: SearchResult) -> str:
    return repr((answer.ranked, answer.near_misses, answer.rejections, answer.points))


@pytest.fixture(scope="module")
def easy() -> SearchResult:
    return search(Question(question(), catalog()))


@pytest.fixture(scope="module")
def hard() -> SearchResult:
    return search(Question(HARD, catalog()))


def test_an_easy_question_is_answered_within_its_limits(easy: SearchResult):
    assert easy.ranked
    for s in easy.ranked:
        assert s.verified.ttft_p95_s <= 1.0 and s.verified.tpot_p95_s <= 0.04
        assert s.verified.is_precise and s.verified.requests >= 20_000


def test_each_accelerator_is_ranked_or_rejected_once(easy: SearchResult, hard: SearchResult):
    for answer in (easy, hard, search(Question(question(), catalog(model=LLAMA_70B)))):
        named = [s.lane.choice.accelerator.slug for s in answer.ranked] + [r.accelerator for r in answer.rejections]
        assert sorted(named) == ["big", "board", "small", "tiny", "unsold"]


def test_an_infeasible_question_is_an_answer_with_reasons(hard: SearchResult):
    assert hard.ranked == () and hard.feasible == 0
    assert rejected(hard) == {
        "big": "misses_slo",
        "small": "misses_slo",
        "tiny": "does_not_fit",
        "unsold": "unpriced",
        "board": "unsupported",
    }
    assert all(r.detail for r in hard.rejections)


def test_the_ranking_is_by_cost_and_a_cheaper_price_never_costs_more(easy: SearchResult):
    costs = [s.usd_per_hour for s in easy.ranked]
    assert costs == sorted(costs)
    cheaper = tuple(replace(o, usd_per_hour=o.usd_per_hour * 0.8) for o in catalog().offers)
    assert search(Question(question(), catalog(offers=cheaper))).ranked[0].usd_per_hour <= costs[0]


def test_the_same_question_has_the_same_answer_here_and_in_another_process(easy: SearchResult):
    assert text(search(Question(question(), catalog()))) == text(easy)
    assert not re.search(r" at 0x[0-9a-f]+", text(easy))  # an address would differ elsewhere
    code = (
        "from tests.engine.search.test_search import text; from tests.engine.catalog_sample import *;"
        "from advisor.engine.search import Question, search;"
        "print(text(search(Question(question(), catalog()))))"
    )
    environment = {"PYTHONPATH": ".", "PYTHONHASHSEED": "7", "DJANGO_SETTINGS_MODULE": "advisor.settings"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert other.stdout.strip() == text(easy), other.stderr


def changed(workload, change: str):
    """The question with the changes that a rejection names."""
    slo = workload.slo
    if "quality: any" in change:
        workload = replace(workload, constraints=replace(workload.constraints, quality="any"))
    for key, value in re.findall(r"(\w+) [<>]= ([\d.]+)", change):
        field = {"ttft_ms_p95": "ttft_p95_s", "tpot_ms_p95": "tpot_p95_s", "e2e_ms_p95": "e2e_p95_s"}.get(key)
        if field:
            slo = replace(slo, **{field: float(value) / 1e3})
        else:
            limits = {key: int(value) if key == "max_accelerators" else float(value)}
            workload = replace(workload, constraints=replace(workload.constraints, **limits))
    return replace(workload, slo=slo)


@pytest.mark.parametrize(
    "asked",
    [
        HARD,
        question(slo=Slo(ttft_p95_s=1.0, tpot_p95_s=0.025)),
        question(slo=Slo(e2e_p95_s=1.0)),
        question(requests_per_s_peak=200.0, requests_per_s_mean=80.0, constraints=Constraints(max_accelerators=1)),
        question(requests_per_s_peak=60.0, constraints=Constraints(max_usd_per_month=2000.0)),
    ],
)
def test_a_change_that_is_said_to_pass_passes(asked):
    claims = [r for r in search(Question(asked, catalog())).rejections if r.smallest_change.startswith("passes with")]
    assert claims
    for claim in claims:
        again = search(Question(changed(asked, claim.smallest_change), catalog()))
        assert claim.accelerator in [s.lane.choice.accelerator.slug for s in again.ranked], claim


def test_a_format_that_is_said_to_fit_fits():
    answer = search(Question(question(), catalog(model=LLAMA_70B, offers=(offer("big", 4.0), offer("small", 0.7)))))
    (tiny,) = [r for r in search(Question(question(), catalog())).rejections if r.accelerator == "tiny"]
    assert tiny.smallest_change.startswith("passes with quality: any") and "fits in memory" in tiny.detail
    wider = question(constraints=Constraints(quality="any"))
    assert rejected(search(Question(wider, catalog()))).get("tiny") != "does_not_fit"
    (small,) = [r for r in answer.rejections if r.accelerator == "small"]
    assert small.reason == "does_not_fit" and small.reached > small.limit


def test_an_offer_outside_the_constraints_is_named():
    answer = search(Question(question(constraints=Constraints(regions_allow=("south",))), catalog()))
    (big,) = [r for r in answer.rejections if r.accelerator == "big"]
    assert big.reason == "unpriced" and big.smallest_change == "priced with constraints.regions.allow: [south, north]"
    bought = catalog(offers=(offer("big", 4.0, acquisition="own", provider="own", region="own-site"),))
    answer = search(Question(question(constraints=Constraints(regions_allow=("south",))), bought))  # which rents alone
    (big,) = [r for r in answer.rejections if r.accelerator == "big"]
    assert big.smallest_change == "priced with constraints.acquisition: [rent, own]"


def test_spare_replicas_are_paid_for_and_share_the_load():
    plain, spare = (
        search(Question(question(slo=Slo(tpot_p95_s=0.04, spare_hosts=n)), catalog())).ranked[0] for n in (0, 1)
    )
    assert spare.replicas >= 2 and spare.spare_replicas == 1
    assert spare.usd_per_hour >= plain.usd_per_hour
    assert spare.utilisation_fraction * spare.capacity_requests_per_s == pytest.approx(2.0)


def test_idle_chips_of_an_instance_are_counted():
    few = question(constraints=Constraints(max_accelerators=3))  # of the eight that are sold together
    (best,) = search(Question(few, catalog(offers=(offer("big", 30.0, 8),)))).ranked
    assert best.instances * 8 == best.chips + best.idle_chips and best.idle_chips > 0
    assert best.usd_per_hour == pytest.approx(best.instances * 30.0)


def test_a_rank_in_the_picture_is_the_ranked_deployment(easy: SearchResult):
    ranked = {p.rank: p for p in easy.points if p.rank is not None}
    assert sorted(ranked) == list(range(1, len(easy.shown) + 1))
    for rank, s in enumerate(easy.shown, 1):
        assert (ranked[rank].chips, ranked[rank].usd_per_hour) == (s.chips, s.usd_per_hour)


def test_a_cheaper_design_that_a_view_came_upon_takes_its_chips_place(easy: SearchResult):
    dear = easy.ranked[-1]
    cheap = replace(dear, parts=tuple(replace(p, usd_per_hour=p.usd_per_hour / 1e3) for p in dear.parts))
    ranked = best_per_accelerator(question(), easy.ranked, {"fastest": cheap}, easy.scale, LLAMA_70B)
    assert ranked[0] is cheap and len(ranked) == len(easy.ranked)
    _, views = add_view_winners(question(), ranked, {"cheapest": dear}, easy.scale, LLAMA_70B)
    assert views == {"cheapest": 0}


def test_memory_parts_add_up_to_what_the_framework_may_fill(easy: SearchResult):
    for s in easy.ranked:
        m, total = s.memory, s.lane.choice.accelerator.memory_bytes
        parts = m.weights_bytes + m.kv_bytes + m.activations_bytes + m.overhead_bytes + m.free_bytes
        assert parts == pytest.approx(total * s.lane.framework.memory_fraction, rel=0.05)
        assert parts <= total and min(m.kv_bytes, m.free_bytes) >= 0


def test_arrays_agree_with_a_loop_over_single_plans():
    workload, known = question(), catalog()
    wanted, _ = enumerate_lanes(Question(workload, known), admissible(Question(workload, known))[1])
    table, demand = evaluate(Question(workload, known), wanted), demand_of(workload)
    rng = np.random.default_rng(1)
    for i in rng.choice(len(table.lanes), 12, replace=False):
        lane, j = table.lanes[i], int(rng.integers(len(CONCURRENCY)))
        single = lanes(known.model, [lane])
        parallel = lane.choice.pp * lane.choice.dp
        users = max(CONCURRENCY[j] / parallel, 1.0)
        capacity = closed_loop(single.times, np.array([users]), demand, scheduler_of(lane)).requests_per_s[0] * parallel
        n = max(math.ceil(5.0 / (capacity * 0.85)), 1)
        loaded = open_loop(single.times, np.array([5.0 / n / parallel]), demand, scheduler_of(lane))
        assert table.capacity_requests_per_s[i, j] == pytest.approx(capacity)
        assert table.replicas[i, j] == n
        assert table.tpot_p95_s[i, j] == pytest.approx(loaded.tpot_p95_estimate_s[0])
        assert table.ttft_p95_s[i, j] == pytest.approx(loaded.ttft_p95_estimate_s[0])


def test_the_winner_costs_no_more_than_the_best_of_simulating_everything():
    """Every lane and concurrency of the cheap counts simulated in full: the search gives away at most 10 %."""
    lengths = Lengths(mean_tokens=300, p95_tokens=300), Lengths(mean_tokens=60, p95_tokens=60)
    workload = question(input_tokens=lengths[0], output_tokens=lengths[1], requests_per_s_peak=30.0)
    known = catalog()
    wanted, _ = enumerate_lanes(Question(workload, known), admissible(Question(workload, known))[1])
    table = evaluate(Question(workload, known), wanted)
    simulations, scores = Simulations(Question(workload, known), table), table_scores(workload, table, Scale())
    found = search(Question(workload, known)).ranked[0]
    best = final_score(workload, found, Scale())
    for i, j in zip(*np.nonzero(scores < best), strict=True):
        for n in (int(table.replicas[i, j]), int(table.replicas[i, j]) + 1):
            trial = simulations.run_in_full(workload, Design(row=int(i), column=int(j), replicas=n))
            if trial.excess_fraction <= 1:
                assert simulations.scored(workload, trial).usd_per_hour >= best / 1.1


def test_a_budget_that_nothing_meets_names_the_nearest_by_its_share():
    money = question(constraints=Constraints(max_usd_per_month=1.0))
    answer = search(Question(money, catalog()))
    assert not answer.ranked and answer.near_misses
    over = [s.usd_per_hour for s in answer.near_misses]
    assert over == sorted(over)


def test_a_site_without_the_power_is_told_how_much_it_takes():
    answer = search(Question(question(constraints=Constraints(max_watts=1.0)), catalog()))
    assert not answer.ranked
    told = [r for r in answer.rejections if r.reason == "too_much_power"]
    assert told and all("kW at full load" in r.detail or "not published" in r.detail for r in told)


def test_a_question_that_leaves_no_layout_is_an_answer():
    answer = search(Question(question(constraints=Constraints(vendors_allow=("nobody",))), catalog()))
    assert not answer.ranked and {r.reason for r in answer.rejections} == {"excluded"}


def test_found_prefixes_count_only_for_frameworks_that_share_them():
    """The same chip needs no less for a stated hit rate where the framework keeps no common prefixes."""
    hits = question(prefix_cache_hit_fraction=0.8)
    sharing = replace(VLLM, features=(*VLLM.features, "prefix_caching"))
    plain, shared = (
        evaluate(Question(hits, world), lanes_of(hits, world))
        for world in (catalog(frameworks=(f,)) for f in (VLLM, sharing))
    )
    without = evaluate(
        Question(question(), catalog(frameworks=(VLLM,))), lanes_of(question(), catalog(frameworks=(VLLM,)))
    )
    assert np.array_equal(plain.capacity_requests_per_s, without.capacity_requests_per_s)
    assert shared.capacity_requests_per_s.max() > 1.5 * plain.capacity_requests_per_s.max()


def lanes_of(asked, world):
    _, chips = admissible(Question(asked, world))
    return enumerate_lanes(Question(asked, world), chips)[0]
