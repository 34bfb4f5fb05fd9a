"""The lines of a step's ledger: FLOPs and bytes of attention by hand, what binds them, and shares of a request."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.engine.network.blocks import Attention, Block, Ffn, Recurrent
from advisor.engine.network.model import Model
from advisor.engine.step.lane import Lanes, lanes
from advisor.engine.step.lane_times import prefill_s, step_s
from advisor.engine.step.ledger import (
    Line,
    adapter_line,
    attention_line,
    context_tokens,
    decode_ledger,
    linear_operators_at,
    prefill_fraction,
    prefill_ledger,
    prompt_tokens,
    source_lines,
)
from advisor.engine.step.operators import attention_cost
from advisor.engine.terms.workloads.kinds import EMBEDDING
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.catalog_sample import FP8, chip, lane, question
from tests.engine.step.test_operators import ATTENTION, INDEXED, LATENT, chips, model

RECURRENT = Recurrent(kind="mamba1", inner=12, state=5, heads=3, head_dim=4)


def line(m: Model, phase: str, sequences: float, context: float, **changes: float) -> Line:
    x = chips(**changes)
    return attention_line(m, x, attention_cost(m, x), phase, sequences, context)


def with_blocks(*mixers: Any) -> Model:
    return replace(model(None), blocks=tuple(Block(count=1, mixer=mixer, ffn=None) for mixer in mixers))


# --- attention --------------------------------------------------------------------------------------------------


def test_a_decode_meets_the_context_of_each_of_its_sequences():
    """3 layers x 4 heads x 6 numbers x 2 x 100 tokens; 12 numbers of a byte a token and layer; five sequences."""
    found = line(model(ATTENTION), "decode", 5, 100)
    assert (found.operator, found.phase) == ("attention/kv_read", "decode")
    assert (found.flops, found.bytes) == (5 * 3 * 4 * 6 * 2 * 100, 5 * 3 * 12 * 100)
    assert found.time_s == pytest.approx(5 * 3 * 100 * (48 / 25 + 1.2))
    half = line(model(ATTENTION), "decode", 5, 100, tp=2.0)
    assert (half.flops, half.bytes) == (found.flops / 2, found.bytes / 2)
    staged = line(model(ATTENTION), "decode", 5, 100, pp=3.0)
    assert staged.bytes == found.bytes  # a pass reads the cache of every stage


def test_a_prompt_meets_itself_and_writes_its_cache_once():
    found = line(model(ATTENTION), "prefill", 1, 100)
    assert found.operator == "attention/scores"
    assert (found.flops, found.bytes) == (3 * 4 * 6 * 2 * 5050, 3 * 12 * 100)
    assert found.time_s == pytest.approx(3 * 5050 * 48 / 25)


def test_a_window_bounds_what_is_met_and_read():
    m = model(replace(ATTENTION, window_tokens=64))
    decode, prefill = line(m, "decode", 1, 100), line(m, "prefill", 1, 100)
    assert (decode.flops, decode.bytes) == (3 * 48 * 64, 3 * 12 * 64)
    assert decode.time_s == pytest.approx(3 * 64 * (48 / 25 + 1.2))
    pairs = 64 * 65 / 2 + 36 * 64
    assert prefill.flops == 3 * 48 * pairs
    assert prefill.time_s == pytest.approx(3 * pairs * 48 / 25)
    assert line(m, "decode", 1, 50).flops == 3 * 48 * 50


def test_a_latent_is_decoded_in_its_absorbed_form_and_read_out_in_its_expanded_one():
    assert line(model(LATENT), "decode", 1, 100).flops == 3 * 2 * 4 * (2 * 5 + 2) * 100
    assert line(model(LATENT), "prefill", 1, 100).flops == 3 * 2 * 4 * (3 + 2 + 4) * 5050
    assert line(model(INDEXED), "decode", 1, 100).flops == 3 * 2 * 4 * 12 * 16


def test_what_looks_both_ways_meets_all_pairs_and_reads_keys_that_no_cache_keeps():
    """16-bit keys and values: 2 KV heads x 6 numbers x 2 bytes, halved on two chips."""
    m = model(replace(ATTENTION, causal=False))
    found = line(m, "prefill", 1, 100, tp=2.0)
    assert (found.flops, found.bytes) == (3 * 4 / 2 * 6 * 2 * 100**2, 3 * 2 * 100 * 2 / 2 * 6)
    assert line(m, "decode", 1, 100).bytes == 0


def test_recurrent_layers_and_sources_add_no_scores():
    cross = replace(ATTENTION, cross=True, causal=False)
    m = with_blocks(RECURRENT, cross, None, ATTENTION)
    assert line(m, "decode", 1, 100).flops == 48 * 100
    assert line(m, "prefill", 1, 100).flops == 48 * 5050
    assert line(m, "decode", 1, 100).bytes == 12 * 100 + 240 + 72


def test_a_line_is_bound_by_the_slower_of_arithmetic_and_memory():
    """48 FLOPs and 12 bytes a token: even at 25 FLOP/s and 6.25 bytes/s."""
    assert line(model(ATTENTION), "decode", 1, 100, memory_bytes_per_s=6.2).bound == "memory"
    assert line(model(ATTENTION), "decode", 1, 100, memory_bytes_per_s=6.3).bound == "compute"
    assert line(model(ATTENTION), "prefill", 1, 100).bound == "compute"


# --- sources and adapters ---------------------------------------------------------------------------------------

ENCODER = Block(count=2, mixer=replace(ATTENTION, causal=False), ffn=Ffn(inner=10), stage="encoder")
CROSS = Block(count=3, mixer=replace(ATTENTION, cross=True, causal=False), ffn=None)
SEQ2SEQ = replace(model(None), blocks=(ENCODER, CROSS), source_tokens=512)


def test_a_decode_reads_the_source_of_each_of_its_sequences():
    (found,) = source_lines(SEQ2SEQ, chips(), "decode", 5, np.array([50.0]))
    assert found.operator == "cross_attention/kv_read"
    assert (found.flops, found.bytes) == (5 * 3 * 2 * 4 * 6 * 50, 5 * 3 * 12 * 50)
    assert found.time_s == pytest.approx(5 * 3 * 50 * (48 / 25 + 1.2))
    assert found.bound == "compute"
    (slow,) = source_lines(SEQ2SEQ, chips(memory_bytes_per_s=6.2), "decode", 5, np.array([50.0]))
    assert slow.bound == "memory"


def test_a_prompt_runs_its_source_and_a_model_without_one_has_no_lines():
    names = {found.operator for found in source_lines(SEQ2SEQ, chips(), "prefill", 1, np.array([50.0]))}
    assert {"encoder/attention_scores", "cross_attention/source_kv", "encoder/embedding"} <= names
    assert not list(source_lines(model(ATTENTION), chips(), "decode", 1, np.array([0.0])))


DENSE = model(ATTENTION, Ffn(inner=10))


def built(m: Model = DENSE, **times: float) -> Lanes:
    found = lanes(m, [lane(chip("any"))])
    changed = {name: np.array([value]) for name, value in times.items()}
    return replace(found, times=replace(found.times, **changed))


def test_the_wait_for_an_adapter_is_what_a_prompt_pays_beyond_its_source():
    with_wait = built(source_s_per_sequence=5.0)
    assert adapter_line(with_wait, 0, "prefill", []).time_s == 5
    assert adapter_line(with_wait, 0, "decode", []).time_s == 0
    paid = Line(phase="prefill", operator="x", time_s=2.0, flops=0.0, bytes=0.0, bound="memory")
    assert adapter_line(with_wait, 0, "prefill", [paid]).time_s == 3
    assert adapter_line(with_wait, 0, "prefill", [replace(paid, time_s=5.0 - 1e-13)]).time_s == 0


# --- a whole step -----------------------------------------------------------------------------------------------


def test_lines_add_up_to_the_step_slowest_first_with_its_sampling_and_its_wait_for_the_host():
    lanes_ = built(host_s=1.0, sample_s_per_sequence=1e-3)
    for found, whole_s in (
        (decode_ledger(DENSE, lanes_, 0, 5, 100), step_s(lanes_, 0, 5, 100)),
        (prefill_ledger(DENSE, lanes_, 0, 100), prefill_s(lanes_, 0, 100)),
    ):
        seconds = [entry.time_s for entry in found]
        assert sum(seconds) == pytest.approx(whole_s) and seconds == sorted(seconds, reverse=True)
        assert found[0].operator == "host" and min(seconds) > 0
        assert found[1].operator == "sampling" and found[1].bound == "memory"
    assert found[1].time_s == 1e-3
    assert found[1].bytes == pytest.approx(1e-3 * lanes_.layouts.memory_bytes_per_s[0])


def test_operators_of_equal_name_from_several_kinds_of_layers_are_one_line():
    m = with_blocks(ATTENTION, replace(ATTENTION, heads=8))
    found = {entry.operator: entry for entry in decode_ledger(m, built(m), 0, 1, 100)}
    assert found["attention/qkv"].flops == 2 * 8 * (12 + 12) + 2 * 8 * (24 + 12)


def test_a_part_filled_tile_multiplies_and_lasts_as_a_full_one():
    """65 tokens in tiles of 64 are 128; without tiles they are 65, and last between grid points."""
    m = DENSE
    plain = lanes(m, [lane(chip("any"), FP8)])

    def up(tile: float, tokens: float) -> tuple[float, float]:
        tiled = replace(plain, times=replace(plain.times, tile_tokens=np.array([tile])))
        found = {op.name: op for op in linear_operators_at(m, tiled, 0, np.array([tokens]))}["ffn/up"]
        return found.flops.item(), found.time_s.item()

    assert up(64, 65) == up(64, 128) == up(0, 128)
    flops, time_s = up(0, 65)
    assert flops == 3 * 2 * 65 * 8 * 20
    assert time_s == pytest.approx(up(0, 64)[1] + (up(0, 128)[1] - up(0, 64)[1]) / 64)


# --- a request --------------------------------------------------------------------------------------------------


def test_cached_tokens_of_a_prompt_are_not_computed_and_at_least_one_is():
    asked = question(input_tokens=Lengths(mean_tokens=1000, p95_tokens=1000), prefix_cache_hit_fraction=0.75)
    assert prompt_tokens(asked) == 250
    assert prompt_tokens(replace(asked, prefix_cache_hit_fraction=1.0)) == 1


def test_a_request_is_met_half_way_through_its_answer():
    asked = question(
        input_tokens=Lengths(mean_tokens=1000, p95_tokens=1000), output_tokens=Lengths(mean_tokens=200, p95_tokens=200)
    )
    assert context_tokens(asked) == 1100


def test_prefills_share_of_a_request_by_hand():
    asked, lanes_ = question(), built()
    first_s, later_s = prefill_s(lanes_, 0, 1000), step_s(lanes_, 0, 4, 1100) / 4
    assert prefill_fraction(asked, lanes_, 0, 4) == pytest.approx(first_s / (first_s + 200 * later_s))
    assert prefill_fraction(asked, lanes_, 0, 0.2) == prefill_fraction(asked, lanes_, 0, 1)
    assert prefill_fraction(replace(asked, kind=EMBEDDING), lanes_, 0, 4) == 1


def test_heads_of_attention_are_those_of_the_mixer():
    assert line(model(Attention(heads=8, kv_heads=2, head_dim=3)), "decode", 1, 10).flops == 3 * 2 * 8 * 6 * 10
