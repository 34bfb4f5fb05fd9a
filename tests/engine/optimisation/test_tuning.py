"""The optimisation plan: one field a step, from naive to the plan; formats, frameworks, pitfalls and the roofline."""

import math
from dataclasses import fields, replace

import pytest

from advisor.engine.optimisation.formats import Bounds, format_advice, format_setups
from advisor.engine.optimisation.frameworks import compare_frameworks, framework_setups
from advisor.engine.optimisation.pitfalls import pitfalls
from advisor.engine.optimisation.plan import (
    OptimisationPlan,
    Setup,
    estimate_setups,
    optimisation_plan,
    planned,
    unfused_s_per_pair,
)
from advisor.engine.optimisation.roofline import Roofline, roofline_of
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.simulated import Scored
from advisor.engine.step.drafts.speculative import Acceptance
from advisor.engine.step.ledger import context_tokens, decode_ledger, prefill_ledger, prompt_tokens
from advisor.engine.terms.workloads.workload import Constraints, Lengths
from tests.engine.catalog_sample import LLAMA_8B, LLAMA_70B, SGLANG, VLLM, catalog, question

DRAFTS = (Acceptance(method="eagle", task="chat", accepted_fraction=0.7, source="sample"),)
ABLE = replace(
    VLLM, features=(*VLLM.features, "prefix_caching", "speculative", "disaggregation"), speculative=("eagle",)
)
WORLD = catalog(acceptances=DRAFTS, frameworks=(ABLE, SGLANG))
ASKED = question(prefix_cache_hit_fraction=0.3)


@pytest.fixture(scope="module")
def answer() -> SearchResult:
    return search(Question(ASKED, WORLD))


@pytest.fixture(scope="module")
def best(answer: SearchResult) -> Scored:
    return next(s for s in answer.ranked if s.lane.framework.slug == "vllm")


@pytest.fixture(scope="module")
def plan(best: Scored) -> OptimisationPlan:
    found = optimisation_plan(Question(ASKED, WORLD), best)
    assert found is not None
    return found


def chain(plan: OptimisationPlan) -> list[Setup]:
    return [s.estimate.setup for s in plan.steps if s.state in ("base", "used") and s.estimate]


def changed(a: Setup, b: Setup) -> list[str]:
    """Names of the fields that differ, those of the lane's choice among them."""
    own = [f.name for f in fields(Setup) if f.name != "lane" and getattr(a, f.name) != getattr(b, f.name)]
    one, two = a.lane.choice, b.lane.choice
    sizes = [n for n in ("tp", "ep", "dp") if getattr(one, n) != getattr(two, n)]
    rest = [n for n in ("quantization", "kv_dtype") if getattr(one, n) != getattr(two, n)]
    return own + rest + (["size"] if sizes else [])


def test_every_step_changes_one_field_and_the_last_is_the_plan(plan: OptimisationPlan, best: Scored) -> None:
    setups = chain(plan)
    assert all(len(changed(a, b)) == 1 for a, b in zip(setups, setups[1:], strict=False))
    assert changed(setups[-1], planned(ASKED, best)) in ([], ["reserved_tokens"])
    assert setups[0].batching == "one" and not setups[0].paged and setups[0].lane.choice.quantization.slug == "bf16"


def test_the_gains_multiply_to_the_whole(plan: OptimisationPlan) -> None:
    used = [s.gain_ratio for s in plan.steps if s.state == "used"]
    assert math.prod(used) == pytest.approx(plan.gain_ratio)
    assert plan.gain_ratio > 5


def test_what_is_only_cited_has_a_source_and_no_gain(plan: OptimisationPlan) -> None:
    cited = [s for s in plan.steps if s.state == "cited"]
    assert {s.technique.slug for s in cited} == {"compile", "cache_offload", "ahead_of_time"}
    for step in cited:
        assert math.isnan(step.gain_ratio) and step.estimate is None
        assert step.technique.cited and step.technique.source


def test_every_technique_is_named_once_with_its_effort_risk_and_prerequisite(plan: OptimisationPlan) -> None:
    slugs = [s.technique.slug for s in plan.steps if s.state != "possible"]
    assert len(slugs) == len(set(slugs))
    assert {"naive", "graphs", "flash_attention", "continuous_batching", "paged_cache", "prefix_caching"} <= set(slugs)
    assert {"speculative_decoding", "disaggregation"} <= {s.technique.slug for s in plan.steps}
    assert all(s.technique.risk and s.technique.needs for s in plan.steps)


def test_another_chip_gives_other_gains(answer: SearchResult, plan: OptimisationPlan, best: Scored) -> None:
    other = next(s for s in answer.ranked if s.lane.choice.accelerator != best.lane.choice.accelerator)
    theirs = optimisation_plan(Question(ASKED, WORLD), other)
    assert theirs is not None and theirs.gain_ratio != pytest.approx(plan.gain_ratio, rel=0.05)


def test_sixteen_bits_that_fit_nowhere_start_from_more_chips_or_the_plans_format() -> None:
    world = catalog(model=LLAMA_70B)
    found = search(Question(question(constraints=Constraints(quality="near_lossless")), world))
    step = optimisation_plan(Question(question(), world), found.ranked[0])
    assert step is not None and chain(step)[0].lane.choice.tp >= found.ranked[0].lane.choice.tp


def test_a_reservation_at_the_longest_length_holds_fewer_requests(best: Scored) -> None:
    paged = planned(ASKED, best)
    kept = replace(paged, paged=False, reserved_tokens=100 * paged.lane.context_tokens)
    long = replace(ASKED, input_tokens=Lengths(mean_tokens=8000, p95_tokens=8000))
    many, few = estimate_setups(long, WORLD.model, [paged, kept])
    assert few.concurrency < many.concurrency / 5


def test_scores_through_memory_cost_what_they_move() -> None:
    """32 layers x 32 heads x 8 bytes a score, both halves of the mask."""
    assert unfused_s_per_pair(LLAMA_8B, 1, 1e12) == pytest.approx(32 * 32 * 8 * 2 / 1e12)


def test_pools_of_their_own_are_measured_beside_the_plan(plan: OptimisationPlan) -> None:
    (step,) = [s for s in plan.steps if s.technique.slug == "disaggregation"]
    assert step.state == "possible" and step.estimate and step.estimate.ttft_s > 0 and step.gain_ratio > 0.5


# --- formats and frameworks -------------------------------------------------------------------------------------


def advice(best: Scored, **question_changes: object):
    asked = replace(ASKED, **question_changes)
    setups = format_setups(WORLD, best, planned(asked, best))
    figures = dict(zip(setups, estimate_setups(asked, WORLD.model, list(setups.values())), strict=True))
    return format_advice(Question(asked, WORLD), best, figures, Bounds(prefill="compute", decode="memory"))


def test_a_format_outside_the_quality_is_measured_but_not_advised(best: Scored) -> None:
    found = {a.quantization.slug: a for a in advice(best)}
    assert found["awq"].state == "outside" and found["awq"].estimate is not None
    assert {a.state for a in found.values()} <= {"plan", "advised", "possible", "outside", "retrained", "cannot"}
    assert found["bf16"].gain_ratio < found["fp8"].gain_ratio


@pytest.mark.parametrize(("task", "strong"), [("any", False), ("maths", True), ("code", True), ("reasoning", True)])
def test_four_bits_on_a_decoder_carry_their_warning(best: Scored, task: str, strong: bool) -> None:
    (found,) = [a for a in advice(best, task=task) if a.quantization.slug == "awq"]
    assert "arXiv:2501.03035" in found.warning
    assert ("prefer 8 bits" in found.warning) == strong
    assert found.check


def test_long_answers_are_warned_of_as_reasoning_is(best: Scored) -> None:
    long = Lengths(mean_tokens=4000, p95_tokens=9000)
    (found,) = [a for a in advice(best, output_tokens=long) if a.quantization.slug == "awq"]
    assert "prefer 8 bits" in found.warning


def test_frameworks_are_compared_at_their_versions_and_one_is_best(best: Scored) -> None:
    setups = framework_setups(WORLD, best, planned(ASKED, best))
    figures = dict(zip(setups, estimate_setups(ASKED, WORLD.model, list(setups.values())), strict=True))
    found = compare_frameworks(Question(ASKED, WORLD), best, figures, {})
    assert {(r.framework.slug, r.framework.version) for r in found} == {("vllm", "0.24.0"), ("sglang", "0.5.10")}
    assert sum(r.best for r in found) == 1 and sum(r.plan for r in found) == 1
    assert all(r.estimate is None or r.estimate.output_tokens_per_s_per_chip > 0 for r in found)


# --- pitfalls and the roofline ----------------------------------------------------------------------------------


def slugs(world: Catalog, answer: SearchResult, s: Scored, asked=ASKED) -> set[str]:
    assert answer.built is not None
    return {p.slug for p in pitfalls(asked, world.model, s, answer.built)}


def with_choice(s: Scored, **choice: object) -> Scored:
    return replace(s, lane=replace(s.lane, choice=replace(s.lane.choice, **choice)))


def test_a_pitfall_is_named_only_where_it_applies(answer: SearchResult, best: Scored) -> None:
    plain = slugs(WORLD, answer, best)
    assert {"recompile_limit", "memory_fraction", "cold_start"} <= plain
    assert not {"kv_replicated", "heads_not_divisible", "alignment", "pcie_peers", "buckets"} & plain
    constant = replace(ASKED, input_tokens=Lengths(mean_tokens=1000, p95_tokens=1000))
    assert "recompile_limit" not in slugs(WORLD, answer, best, constant)


def test_more_chips_than_kv_heads_keep_the_cache_more_than_once(answer: SearchResult, best: Scored) -> None:
    assert "kv_replicated" in slugs(WORLD, answer, with_choice(best, tp=16))


def test_heads_and_widths_that_do_not_divide_are_named(answer: SearchResult, best: Scored) -> None:
    block = replace(LLAMA_8B.blocks[0], mixer=replace(LLAMA_8B.blocks[0].mixer, heads=28, kv_heads=4))
    odd = replace(WORLD, model=replace(LLAMA_8B, hidden=3584 + 32, blocks=(block,)))
    assert {"heads_not_divisible", "alignment"} <= slugs(odd, answer, best)


def test_prefixes_that_a_framework_does_not_share_are_named(answer: SearchResult, best: Scored) -> None:
    plain = replace(best, lane=replace(best.lane, framework=replace(VLLM, features=())))
    assert "prefix_caching_off" in slugs(WORLD, answer, plain)
    assert "prefix_caching_off" not in slugs(WORLD, answer, best)


def test_cards_without_a_link_are_told_of_peer_access(answer: SearchResult, best: Scored) -> None:
    card = with_choice(best, tp=2, accelerator=replace(best.lane.choice.accelerator, links=()))
    assert "pcie_peers" in slugs(WORLD, answer, card)


def taught(answer: SearchResult, s: Scored) -> Roofline:
    assert answer.built is not None
    prefill = prefill_ledger(WORLD.model, answer.built, s.row_index, prompt_tokens(ASKED))
    decode = decode_ledger(WORLD.model, answer.built, s.row_index, 8.0, context_tokens(ASKED))
    return roofline_of(s, answer.built, prefill, decode)


def test_both_phases_sit_under_the_roofs_that_are_drawn(answer: SearchResult, best: Scored) -> None:
    found = taught(answer, best)
    prefill, decode = found.phases
    assert decode.flops_per_byte < found.ridge_flops_per_byte < prefill.flops_per_byte
    for phase in found.phases:
        roof = min(found.datasheet_flops_per_s, phase.flops_per_byte * found.datasheet_bytes_per_s)
        assert phase.flops_per_s < roof
    assert found.reached_flops_per_s < found.datasheet_flops_per_s
    assert any("To speed up decode" in text for text in found.sentences)


def test_the_roofline_names_both_limits_and_their_basis(answer: SearchResult, best: Scored) -> None:
    said = taught(answer, best).sentences[0]
    c = best.lane.choice
    assert f"{c.accelerator.memory_bytes_per_s / 1e12:.2f} TB/s (datasheet)" in said
    words = {"measured": "measured on this chip", "relative": "a related chip", "datasheet": "on other chips"}
    assert words[c.efficiency.basis] in said


def test_frameworks_that_nothing_measured_tells_apart_are_said_to_be_as_good(best: Scored) -> None:
    twin = replace(ABLE, slug="twin", name="Twin")
    slow = replace(SGLANG, slug="slow", name="Slow", default_max_batched_tokens=16)
    world = replace(WORLD, frameworks=(ABLE, twin, slow))
    plan = planned(ASKED, best)
    setups = framework_setups(world, best, plan)
    figures = dict(zip(setups, estimate_setups(ASKED, world.model, list(setups.values())), strict=True))
    said = {r.framework.slug: r.because for r in compare_frameworks(Question(ASKED, world), best, figures, {})}
    assert said["vllm"] == "" and "as good within 3%" in said["twin"] and "as good" not in said["slow"]
