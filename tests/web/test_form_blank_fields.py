"""A blank field stays blank when a question is edited, so that what follows from others keeps following."""

from typing import Any

import pytest

from advisor.web import forms
from advisor.web.form_fields import FIELDS, FORM_ONLY, ONE_OF, SOME_OF
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload.schema import Spec, parse

MODEL = "meta-llama/Llama-3.1-8B"
TEXT = {"input_tokens": 1000, "output_tokens": 200}
AUDIO = {"audio": {"hours_per_hour": 40}}
QUESTIONS: dict[str, dict[str, Any]] = {
    "requests": {"traffic": {**TEXT, "requests_per_s": 4}},
    "office hours": {"traffic": {**TEXT, "requests_per_s": 4, "load_curve": "office_hours"}},
    "users": {"traffic": {**TEXT, "users": {"active": 60, "think_s": 30}}},
    "conversations": {
        "traffic": {**TEXT, "turns": {"count": 5, "added_tokens": 300, "wait_s": 9, "conversations_per_hour": 600}}
    },
    "audio": {"traffic": AUDIO},
    "photos": {"traffic": {**TEXT, "requests_per_s": 1, "images": {}}},
    "drawings": {"kind": "image_generation", "traffic": {"requests_per_s": 1, "image_output": {}}},
    "vectors": {"kind": "embedding", "traffic": {"input_tokens": 500, "requests_per_s": 50}},
    "batch": {"kind": "batch", "traffic": TEXT, "batch": {"requests": 7200, "deadline_hours": 1}},
    "adapters": {"traffic": {**TEXT, "requests_per_s": 4}, "adapters": {"count": 8}},
    "run": {"kind": "training", "training": {"tokens": 2e12}},
    "grpo": {
        "kind": "finetuning",
        "finetuning": {"objective": "grpo", "iterations": 100, "response_tokens": 500, "method": "lora"},
    },
    "tuning": {"kind": "finetuning", "finetuning": {"tokens": 5e7, "method": "lora"}},
}


def edited(spec: dict[str, Any], **changes: str) -> dict[str, Any]:
    return parse(WorkloadForm().combined({**from_spec(spec), **changes}))


def of(name: str) -> dict[str, Any]:
    return parse({"model": MODEL, **QUESTIONS[name]})


def test_longer_prompts_do_not_fall_below_a_percentile_that_nobody_entered() -> None:
    changed = edited(of("requests"), **{"traffic.input_tokens.mean": "2000"})
    assert changed["traffic"]["input_tokens"] == {"mean": 2000, "p95": 2000}


def test_a_higher_rate_moves_the_peak_that_follows_from_it() -> None:
    changed = edited(of("office hours"), **{"traffic.requests_per_s.mean": "8"})
    before = of("office hours")["traffic"]["requests_per_s"]
    assert changed["traffic"]["requests_per_s"] == {"mean": 8, "peak": before["peak"] * 2}


def test_faster_speech_makes_longer_transcripts() -> None:
    changed = edited(of("audio"), **{"traffic.audio.words_per_minute": "300"})
    assert changed["traffic"]["output_tokens"]["mean"] == 2 * of("audio")["traffic"]["output_tokens"]["mean"]


def test_what_was_entered_stays() -> None:
    traffic = {
        "input_tokens": {"mean": 1000, "p95": 3000},
        "output_tokens": {"mean": 200, "p95": 500},
        "requests_per_s": {"mean": 4, "peak": 12},
    }
    initial = from_spec(parse({"model": MODEL, "traffic": traffic}))
    assert [initial[f"traffic.{key}"] for key in ("input_tokens.p95", "requests_per_s.peak")] == ["3000", "12"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_only_what_the_question_needs_is_filled_in(name: str) -> None:
    """Each filled field matters: without it the question is another one, or none. A file has the same rule."""
    spec = of(name)
    initial = from_spec(spec)
    assert parse(WorkloadForm().combined(initial)) == spec == parse(as_file(spec))
    always = {path for path in FIELDS if forms.dig(Spec().model_dump(mode="json"), path) is not None}
    for path in initial.keys() - always:
        if path.startswith(FORM_ONLY) or FIELDS[path].reads in (ONE_OF, SOME_OF):
            continue
        rest = {key: value for key, value in initial.items() if key != path}
        try:
            same = parse(WorkloadForm().combined(rest)) == spec
        except forms.workload.WorkloadError:
            same = False
        assert not same, f"{path} is filled in with {initial[path]}, which it would be anyway"
