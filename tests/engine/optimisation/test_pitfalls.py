"""Every rule of the pitfalls speaks where it applies and is silent where it does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.network.blocks import LatentAttention, Recurrent
from advisor.engine.optimisation.pitfalls import RULES, Situation, pitfalls
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms.workloads.workload import Lengths, Workload
from tests.engine.catalog_sample import LLAMA_8B, VLLM, catalog, question, software

FRAMEWORK = replace(VLLM, features=("prefix_caching",))
WORLD = catalog(frameworks=(FRAMEWORK,))
ASKED = question(prefix_cache_hit_fraction=0.3)
CONSTANT = Lengths(mean_tokens=1000, p95_tokens=1000)
Change = Callable[[Situation], Situation]


@pytest.fixture(scope="module")
def plain() -> Situation:
    found = search(Question(ASKED, WORLD))
    assert found.built is not None
    return Situation(workload=ASKED, model=WORLD.model, s=found.ranked[0], built=found.built)


def scored(**changes: Any) -> Change:
    return lambda x: replace(x, s=replace(x.s, **changes))


def chosen(**choice: Any) -> Change:
    return lambda x: replace(x, s=of_lane(x.s, choice=replace(x.s.lane.choice, **choice)))


def chip(**changes: Any) -> Change:
    return lambda x: chosen(accelerator=replace(x.s.lane.choice.accelerator, **changes))(x)


def under(slug: str = "vllm", **changes: Any) -> Change:
    return lambda x: replace(
        x, s=of_lane(x.s, framework=replace(x.s.lane.framework, slug=slug, **software(slug) | changes))
    )


def asked(**changes: Any) -> Change:
    return lambda x: replace(x, workload=replace(x.workload, **changes))


def mixer(**changes: Any) -> Change:
    block = LLAMA_8B.blocks[0]
    own: Any = block.mixer
    return lambda x: replace(x, model=replace(x.model, blocks=(replace(block, mixer=replace(own, **changes)),)))


def other_mixer(new: Any) -> Change:
    return lambda x: replace(x, model=replace(x.model, blocks=(replace(LLAMA_8B.blocks[0], mixer=new),)))


def model(**changes: Any) -> Change:
    return lambda x: replace(x, model=replace(x.model, **changes))


def memory(**changes: Any) -> Change:
    return lambda x: replace(x, s=replace(x.s, memory=replace(x.s.memory, **changes)))


def both(*changes: Change) -> Change:
    def changed(x: Situation) -> Situation:
        for change in changes:
            x = change(x)
        return x

    return changed


def of_lane(s: Scored, **changes: Any) -> Scored:
    return replace(s, lane=replace(s.lane, **changes))


def graphs_of(tokens: int) -> Change:
    """Host time of a step outside graphs that no chip here needs for a prompt."""

    def changed(x: Situation) -> Situation:
        times = x.built.times
        slow = replace(x.built, times=replace(times, eager_floor_s=times.eager_floor_s * 0 + 9.0))
        return under(graph_max_tokens=tokens)(replace(x, built=slow))

    return changed


LATENT = LatentAttention(heads=32, q_rank=0, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
RECURRENT = Recurrent(kind="mamba2", inner=8192, state=128, heads=32, head_dim=128)
CASES: list[tuple[str, Change, Change]] = [  # slug, where it applies, where it does not
    ("recompile_limit", under(), asked(input_tokens=CONSTANT)),
    ("recompile_limit", under("vllm-tpu"), under("llama.cpp")),
    ("buckets", both(under(stacks=("xla",), compiled_stacks=("xla",)), chip(stacks=("xla",))), under()),
    ("beyond_graphs", graphs_of(64), graphs_of(100_000)),
    ("beyond_graphs", graphs_of(64), graphs_of(0)),
    ("misaligned_sizes", model(hidden=4096 + 4), model(hidden=4096 + 8)),
    ("alignment", model(hidden=4096 + 32), chosen(tp=1)),
    ("alignment", mixer(head_dim=100, heads=33), both(model(hidden=4096 + 32), chip(kind="cpu"))),
    ("heads_not_divisible", mixer(heads=28), mixer(heads=32)),
    ("vocabulary_padding", model(vocab=128_257), model(vocab=128_256)),
    ("vocabulary_padding", model(vocab=128_257), model(vocab=128_257, encoder_only=True)),
    ("built_for_this_chip", under("tensorrt-llm"), under("sglang")),
    ("built_for_this_chip", under("neuron"), under("llama.cpp")),
    ("kv_replicated", chosen(tp=16), chosen(tp=8)),
    ("kv_replicated", both(other_mixer(LATENT), chosen(tp=2)), both(other_mixer(LATENT), chosen(tp=1))),
    ("pcie_peers", both(chosen(tp=2), chip(links=())), chosen(tp=2)),
    ("pcie_peers", both(chosen(tp=2), chip(links=())), both(chosen(tp=1, dp=1), chip(links=()))),
    ("prefix_caching_off", under(features=()), under()),
    ("prefix_caching_off", under("tensorrt-llm"), both(under("tensorrt-llm"), asked(prefix_cache_hit_fraction=0.0))),
    ("prefix_caching_off", other_mixer(RECURRENT), under("sglang")),
    ("memory_fraction", under(), under("llama.cpp", memory_fraction=1.0)),
    ("longest_request", model(max_context_tokens=2048), model(max_context_tokens=10**7)),
    ("cold_start", under(), both(under("llama.cpp", graph_max_tokens=0), memory(weights_bytes=1e8))),
]


@pytest.mark.parametrize(("slug", "applies", "does_not"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_rule_speaks_where_it_applies_and_only_there(
    plain: Situation, slug: str, applies: Change, does_not: Change
) -> None:
    there = {p.slug: p for p in said(applies(roomy(plain)))}
    assert slug in there and there[slug].what and there[slug].remedy and there[slug].source
    assert slug not in {p.slug for p in said(does_not(roomy(plain)))}


def roomy(x: Situation) -> Situation:
    """One chip with room for any request, so that nothing but the change decides."""
    return both(chosen(tp=1, dp=1, ep=1), memory(kv_capacity_tokens=1e9), scored(replicas=x.s.chips))(x)


def said(x: Situation) -> list[Any]:
    return pitfalls(x.workload, x.model, x.s, x.built)


def test_every_rule_has_a_case(plain: Situation) -> None:
    """A rule that is added without a case here fails: each names one slug."""
    assert len({slug for slug, _, _ in CASES}) == len(RULES)


def test_an_asked_workload_is_left_alone(plain: Situation) -> None:
    assert isinstance(plain.workload, Workload) and plain.workload.input_tokens != CONSTANT
