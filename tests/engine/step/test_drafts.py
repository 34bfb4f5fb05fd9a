"""Step times under speculative decoding and the sizes of drafts, by hand on a lane with round costs."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.network import DraftRelease
from advisor.engine.step.drafts.speculative import (
    Acceptance,
    Draft,
    acceptances_of,
    drafts_of,
    methods_of,
    published_draft,
    searched,
    speculative_times,
    suits,
    supports_drafts,
    tokens_per_step,
    with_draft,
)
from advisor.engine.step.layout import Choice
from advisor.engine.step.step_time import StepTimes
from advisor.engine.terms.machines.hardware import Overhead
from tests.engine.catalog_sample import LLAMA_8B, VLLM, chip, ideal, lane
from tests.engine.serving_cases import lane as invented

GRID = 2.0 ** np.arange(16)
TIMES = invented(
    linear_s=1 + 0.5 * GRID, sample_s_per_sequence=3.0, decode_s_per_context_token=5.0, window_s_per_context_token=7.0,
    decode_s_per_sequence=11.0, prefill_s_per_pair=13.0, window_prefill_s_per_pair=17.0, host_s=19.0, serial_s=23.0,
    host_s_per_sequence=29.0, serial_s_per_sequence=31.0, request_s=37.0,
)  # fmt: skip
OWN = invented(
    linear_s=0.1 + 0.01 * GRID, sample_s_per_sequence=0.3, decode_s_per_context_token=0.5,
    window_s_per_context_token=0.7, decode_s_per_sequence=1.1, prefill_s_per_pair=1.3, window_prefill_s_per_pair=1.7,
)  # fmt: skip
ROW = Acceptance(method="eagle", task="chat", accepted_fraction=0.5, source="paper", step_s=0.25, pass_s=0.5)


def value(times: StepTimes, name: str) -> float:
    return float(getattr(times, name)[0])


# --- a step -----------------------------------------------------------------------------------------------------


def test_a_step_verifies_its_drafts_and_is_shared_by_the_tokens_shown():
    """3 drafts at one half: 1.875 tokens. A sequence brings 4 tokens to a step."""
    assert tokens_per_step(0.5, 3) == 1.875
    found = speculative_times(TIMES, 3, 0.5)
    assert found.linear_s[0] == pytest.approx((1 + 0.5 * 4 * GRID) / 1.875)
    assert value(found, "sample_s_per_sequence") == pytest.approx(3 * 4 / 1.875)
    for name, each in (
        ("decode_s_per_context_token", 5),
        ("window_s_per_context_token", 7),
        ("decode_s_per_sequence", 11),
    ):
        assert value(found, name) == pytest.approx(each / 1.875)
    assert (value(found, "host_s"), value(found, "serial_s")) == pytest.approx((19 / 1.875, 23 / 1.875))


def test_what_a_prompt_or_a_sequence_costs_stays():
    found = speculative_times(TIMES, 3, 0.5)
    for name in (
        "prefill_s_per_pair",
        "window_prefill_s_per_pair",
        "host_s_per_sequence",
        "serial_s_per_sequence",
        "request_s",
    ):
        assert value(found, name) == value(TIMES, name)


def test_drafting_passes_repeat_a_share_of_a_decode_and_heads_are_read():
    """3 passes of a tenth: 0.3 of a decode step more; 2 s of heads."""
    found = speculative_times(TIMES, 3, 0.5, pass_fraction=0.1, head_s=2.0)
    assert found.linear_s[0] == pytest.approx((1 + 2 * GRID + 0.3 * (1 + 0.5 * GRID) + 2) / 1.875)
    assert value(found, "decode_s_per_context_token") == pytest.approx(5 * 1.3 / 1.875)


def test_tokens_beyond_the_seats_are_prompts_which_are_not_drafted():
    """8 seats: of 32 tokens, 8 are verified with 3 drafts each, 24 are computed once and shared by none."""
    found = speculative_times(TIMES, 3, 0.5, slots=8.0)
    wide = 4 * np.minimum(GRID, 8) + 1.875 * (GRID - np.minimum(GRID, 8))
    assert found.linear_s[0] == pytest.approx((1 + 0.5 * wide) / 1.875)
    assert speculative_times(TIMES, 3, 0.5, slots=0.2).linear_s[0][0] == pytest.approx((1 + 0.5 * 4) / 1.875)


def test_a_stated_number_of_tokens_shown_takes_the_place_of_the_formula():
    assert speculative_times(TIMES, 3, 0.0, shown_tokens=2.5).linear_s[0] == pytest.approx((1 + 2 * GRID) / 2.5)


def test_a_drafting_model_makes_each_draft_and_reads_every_prompt():
    found = speculative_times(TIMES, 3, 0.5, slots=8.0, draft_times=OWN)
    decodes = np.minimum(GRID, 8)
    prompts = 1.875 * (GRID - decodes)
    plain_s = speculative_times(TIMES, 3, 0.5, slots=8.0).linear_s[0]
    beside = 3 * (0.1 + 0.01 * decodes) + np.where(prompts > 0, 0.1 + 0.01 * np.maximum(prompts, 1), 0)
    assert found.linear_s[0] == pytest.approx(plain_s + beside / 1.875)
    assert value(found, "decode_s_per_context_token") == pytest.approx((5 + 3 * 0.5) / 1.875)
    assert value(found, "window_s_per_context_token") == pytest.approx((7 + 3 * 0.7) / 1.875)
    assert value(found, "decode_s_per_sequence") == pytest.approx((11 + 3 * 1.1) / 1.875)
    assert value(found, "sample_s_per_sequence") == pytest.approx((3 * 4 + 3 * 0.3) / 1.875)
    assert value(found, "prefill_s_per_pair") == pytest.approx(14.3)
    assert value(found, "window_prefill_s_per_pair") == pytest.approx(18.7)


def test_passes_of_a_draft_model_outside_graphs_are_launched_with_each_step():
    inside = speculative_times(TIMES, 3, 0.5, slots=8.0, draft_times=OWN)
    outside = speculative_times(TIMES, 3, 0.5, slots=8.0, draft_times=OWN, launch_s=0.75)
    for name in ("host_s", "eager_floor_s", "prompt_floor_s"):
        assert value(outside, name) - value(inside, name) == pytest.approx(0.75 / 1.875)
    assert np.array_equal(outside.linear_s, inside.linear_s)


def test_an_ngram_search_is_waited_for_in_each_step_and_for_each_sequence():
    o = replace(ideal(Overhead), ngram_s=0.5, ngram_s_per_sequence=0.3)
    found = searched(TIMES, [o], 1.5)
    assert (value(found, "serial_s"), value(found, "serial_s_per_sequence")) == pytest.approx((23.5, 31.2))


def choice(**changes: object) -> Choice:
    found = lane(chip("any", memory_bytes_per_s=1000.0)).choice
    efficiency = replace(found.efficiency, memory_fraction=0.8)
    overhead = replace(found.overhead, memory_factor=0.5, ngram_s=0.5, ngram_s_per_sequence=0.3)
    return replace(found, efficiency=efficiency, overhead=overhead, **changes)  # type: ignore[arg-type]


DRAFT = Draft(
    method="eagle", name="x", tokens=3, accepted_fraction=0.5, shown_tokens=1.875, pass_fraction=0.1,
    head_bytes=1600.0, task="chat", source="", host_s=1.0,
)  # fmt: skip


def test_heads_are_read_at_the_memorys_rate_by_the_whole_group_and_the_host_is_waited_for():
    """1,600 bytes over 2 chips at 400 bytes/s: 2 s."""
    found = with_draft(TIMES, DRAFT, choice(tp=2), 1e6)
    expected = speculative_times(
        replace(TIMES, serial_s=np.array([24.0])), 3, 0.5, pass_fraction=0.1, head_s=2.0, slots=1e6
    )
    assert found.linear_s == pytest.approx(expected.linear_s)
    assert value(found, "serial_s") == pytest.approx(24 / 1.875)
    assert value(found, "serial_s_per_sequence") == 31


def test_medusa_verifies_a_tree_of_64_positions():
    tree = replace(DRAFT, method="medusa", tokens=4, pass_fraction=0.0, head_bytes=0.0, shown_tokens=2.5)
    found = with_draft(TIMES, tree, choice(), 1e6)
    assert found.linear_s[0] == pytest.approx((1 + 0.5 * 64 * GRID) / 2.5)


def test_drafting_passes_are_those_of_the_drafts_and_not_of_the_tree():
    tree = replace(DRAFT, method="medusa", tokens=4, head_bytes=0.0, shown_tokens=2.5)
    found = with_draft(TIMES, tree, choice(), 1e6)
    assert found.linear_s[0] == pytest.approx((1 + 0.5 * 64 * GRID + 0.4 * (1 + 0.5 * GRID)) / 2.5)


def test_only_ngrams_are_searched_for():
    found = with_draft(TIMES, replace(DRAFT, method="ngram", host_s=0.0), choice(), 1e6)
    assert value(found, "serial_s") == pytest.approx(23.5 / 1.875)
    assert value(found, "serial_s_per_sequence") == pytest.approx(31 + 0.3 / 1.875)


# --- sizes ------------------------------------------------------------------------------------------------------


def sizes(method: str, **row: object) -> list[Draft]:
    return list(drafts_of(LLAMA_8B, replace(ROW, method=method, **row)))  # type: ignore[arg-type]


def test_an_eagle_layer_is_one_of_32_and_reads_a_shortened_head():
    found = sizes("eagle")
    assert [d.tokens for d in found] == [1, 2, 3, 5, 7]
    assert {d.pass_fraction for d in found} == {1 / 32}
    assert [d.head_bytes for d in found] == [k * 32_000 * 4096 * 2 for k in (1, 2, 3, 5, 7)]
    assert [d.host_s for d in found] == [0.25 + k * 0.5 for k in (1, 2, 3, 5, 7)]
    assert found[2].shown_tokens == 1.875 and found[2].task == "chat" and found[2].source == "paper"


def test_sizes_of_the_other_methods():
    (mtp,) = sizes("mtp")
    assert (mtp.tokens, mtp.pass_fraction, mtp.head_bytes) == (1, 1 / 32, 128_256 * 4096 * 2)
    (medusa,) = sizes("medusa", shown_tokens=2.5)
    assert (medusa.tokens, medusa.shown_tokens, medusa.host_s) == (4, 2.5, 0.25)
    assert medusa.head_bytes == 4 * (128_256 + 4096) * 4096 * 2
    assert {(d.pass_fraction, d.head_bytes) for d in sizes("ngram")} == {(0, 0)}
    assert {(d.pass_fraction, d.head_bytes, d.model) for d in sizes("draft")} == {(0.1, 0, None)}


def test_a_drafting_model_is_priced_by_its_own_shape_and_beside_a_model_only():
    small = replace(LLAMA_8B, slug="small")
    assert {(d.pass_fraction, d.model) for d in drafts_of(LLAMA_8B, replace(ROW, method="draft"), small)} == {
        (0, small)
    }
    assert {d.model for d in drafts_of(LLAMA_8B, ROW, small)} == {None}


# --- which ------------------------------------------------------------------------------------------------------


def test_acceptances_are_read_from_their_keys():
    rows = {
        "acceptance-eagle-chat": {"value": 0.7, "source": "a"},
        "tokens-a-step-medusa-any": {"value": 2.6, "source": "b"},
        "acceptance-ngram-code": {"value": 0.5, "source": "c"},
        "draft-step-ms": {"value": 4.0, "source": "d"},
        "draft-pass-ms": {"value": 2.0, "source": "d"},
        "pue": {"value": 1.2, "source": "e"},
    }
    found = {row.method: row for row in acceptances_of(rows)}
    assert set(found) == {"eagle", "medusa", "ngram"}
    assert found["eagle"] == Acceptance(
        method="eagle", task="chat", accepted_fraction=0.7, source="a", step_s=0.004, pass_s=0.002
    )
    assert (found["medusa"].accepted_fraction, found["medusa"].shown_tokens, found["medusa"].task) == (0, 2.6, "any")
    assert (found["ngram"].step_s, found["ngram"].pass_s) == (0, 0)


def test_a_task_has_its_own_row_or_that_of_any_and_any_task_that_of_chat():
    able = replace(VLLM, speculative=("eagle", "ngram"))
    chat, code, every = (replace(ROW, task=task) for task in ("chat", "code", "any"))
    assert methods_of(able, LLAMA_8B, (chat, code, every), "code") == [code]
    assert methods_of(able, LLAMA_8B, (chat, every), "code") == [every]
    assert methods_of(able, LLAMA_8B, (chat,), "code") == []
    assert methods_of(able, LLAMA_8B, (chat,), "any") == [chat]
    assert methods_of(replace(VLLM, speculative=()), LLAMA_8B, (chat,), "chat") == []


def test_encoders_draft_nothing_and_only_some_models_predict_a_second_token():
    assert suits("eagle", LLAMA_8B)
    assert not suits("eagle", replace(LLAMA_8B, encoder_only=True))
    assert not suits("eagle", replace(LLAMA_8B, source_tokens=512))
    deepseek = replace(LLAMA_8B, mtp_layers=1)
    assert suits("mtp", deepseek) and not suits("mtp", LLAMA_8B)
    assert published_draft(deepseek, "mtp") == "the model's own layer" and published_draft(LLAMA_8B, "mtp") == ""


def test_published_drafts_are_those_of_the_models_row():
    releases = (DraftRelease(method="eagle", hf_id="org/head"), DraftRelease(method="draft", hf_id="org/small"))
    llama = replace(LLAMA_8B, draft_releases=releases)
    assert published_draft(llama, "eagle") == "org/head" and published_draft(llama, "draft") == "org/small"
    assert published_draft(llama, "ngram") == "the prompt" and published_draft(llama, "medusa") == ""
    assert published_draft(LLAMA_8B, "eagle") == ""


def test_frameworks_draft_without_a_pipeline_and_with_a_cache_of_16_bits_or_fp8():
    assert [supports_drafts(choice(kv_dtype=kv)) for kv in ("bf16", "fp16", "fp8", "int8")] == [True, True, True, False]
    assert not supports_drafts(choice(pp=2))
