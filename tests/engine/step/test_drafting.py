"""Speculative decoding: tokens shown, what a step then costs, and where it stops paying."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.step.drafts.speculative import (
    Acceptance,
    acceptances_of,
    drafts_of,
    methods_of,
    speculative_times,
    tokens_per_step,
    with_draft,
)
from advisor.engine.step.lane import lanes
from tests.engine.catalog_sample import LLAMA_8B, VLLM, chip, lane

EAGLE = Acceptance(method="eagle", task="chat", accepted_fraction=0.7, source="sample")
ROWS = (
    EAGLE,
    Acceptance(method="mtp", task="any", accepted_fraction=0.85),
    replace(EAGLE, method="ngram", task="code"),
)
ABLE = replace(VLLM, speculative=("eagle", "mtp", "ngram"))


@pytest.mark.parametrize(
    ("accepted", "tokens", "expected"), [(0.0, 4, 1.0), (0.5, 1, 1.5), (0.8, 4, 3.3616), (1.0, 3, 4.0)]
)
def test_tokens_shown_follow_leviathan(accepted: float, tokens: int, expected: float) -> None:
    assert tokens_per_step(accepted, tokens) == pytest.approx(expected)


def ideal_lane():
    own = lane(chip("h100"))
    return replace(own, choice=replace(own.choice, overhead=replace(own.choice.overhead, core_bytes_per_s=1e15)))


def times():
    return lanes(LLAMA_8B, [ideal_lane()]).times


def test_a_draft_that_costs_nothing_and_always_holds_divides_reads_but_not_arithmetic() -> None:
    plain, fast = times(), speculative_times(times(), 3, 1.0)
    one, wide = fast.linear_s[0][0], np.interp(4.0, plain.grid_tokens, plain.linear_s[0])
    assert one == pytest.approx(wide / 4)
    compute_bound = int(np.searchsorted(plain.grid_tokens, 4096))
    assert fast.linear_s[0][compute_bound] == pytest.approx(plain.linear_s[0][compute_bound], rel=0.02)


def test_prompts_beyond_the_slots_are_not_charged_as_drafts() -> None:
    plain = times()
    kept, all_drafted = speculative_times(plain, 3, 0.5, slots=1.0), speculative_times(plain, 3, 0.5)
    at = int(np.searchsorted(plain.grid_tokens, 8192))
    assert kept.linear_s[0][at] == pytest.approx(plain.linear_s[0][at], rel=0.02)
    assert all_drafted.linear_s[0][at] > 1.8 * plain.linear_s[0][at]


def test_a_method_needs_the_framework_the_model_and_a_published_acceptance() -> None:
    assert [row.method for row in methods_of(ABLE, LLAMA_8B, ROWS, "any")] == ["eagle"]
    assert [row.method for row in methods_of(ABLE, LLAMA_8B, ROWS, "code")] == ["ngram"]
    deepseek = replace(LLAMA_8B, mtp_layers=1)
    assert [row.method for row in methods_of(ABLE, deepseek, ROWS, "maths")] == ["mtp"]
    assert methods_of(VLLM, deepseek, ROWS, "any") == []


def test_it_pays_for_one_and_stops_paying_for_many() -> None:
    own = ideal_lane()
    plain = times()
    (draft,) = [d for d in drafts_of(LLAMA_8B, EAGLE) if d.tokens == 3]
    fast = with_draft(plain, draft, own.choice, 1024.0)
    ratio = fast.linear_s[0] / plain.linear_s[0]
    assert ratio[0] < 0.6 and ratio[int(np.searchsorted(plain.grid_tokens, 1024))] > 1.0


def test_passes_and_the_step_wait_for_the_host() -> None:
    rows = {
        "acceptance-eagle-chat": {"value": 0.7, "source": "sample"},
        "acceptance-ngram-chat": {"value": 0.4, "source": "sample"},
        "tokens-a-step-medusa-chat": {"value": 2.5, "source": "sample"},
        "draft-step-ms": {"value": 2.0, "source": "sample"},
        "draft-pass-ms": {"value": 1.0, "source": "sample"},
    }
    eagle, ngram, medusa = acceptances_of(rows)
    waits = {d.tokens: d.host_s for d in drafts_of(LLAMA_8B, eagle)}
    assert waits[1] == pytest.approx(3e-3) and waits[7] == pytest.approx(9e-3)
    assert {d.host_s for d in drafts_of(LLAMA_8B, ngram)} == {0.0}
    assert [d.host_s for d in drafts_of(LLAMA_8B, medusa)] == pytest.approx([2e-3])
    own, draft = ideal_lane(), next(d for d in drafts_of(LLAMA_8B, eagle) if d.tokens == 3)
    quick, slow = (with_draft(times(), d, own.choice, 1.0).serial_s for d in (replace(draft, host_s=0.0), draft))
    assert slow - quick == pytest.approx(5e-3 / tokens_per_step(0.7, 3))


def test_an_older_snapshot_has_no_waits() -> None:
    (eagle,) = acceptances_of({"acceptance-eagle-chat": {"value": 0.7, "source": "sample"}})
    assert {d.host_s for d in drafts_of(LLAMA_8B, eagle)} == {0.0}
