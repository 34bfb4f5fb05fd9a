"""An internal error costs one accelerator or one section; the rest is answered, and the loss is counted."""

from typing import Any

import pytest
from django.conf import settings

from advisor import workload
from advisor.advise import default_organisation
from advisor.answer import advice, internal_errors
from advisor.answer.training import advice as training_advice
from advisor.inputs import take_snapshot
from advisor.result import Answer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FEW = {
    "acquisition": ["rent"],
    "accelerators": {"allow": ["h100-sxm", "h200-sxm"]},
    "frameworks": {"allow": ["vllm"]},
    "formats": {"allow": ["fp8"]},
}
SERVING: dict[str, Any] = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2},
    "variants": "no",
    "constraints": FEW,
}
TUNING: dict[str, Any] = {
    "name": "small",
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.1-8B",
    "finetuning": {"method": "lora", "tokens": 1e6},
    "constraints": {"acquisition": ["rent"], "accelerators": FEW["accelerators"]},
}


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "INTERNAL_ERRORS_END_ANSWERS", False)


def answer(question: dict[str, Any]) -> Answer:
    spec = workload.parse(question)
    return advice.recommend(spec, take_snapshot(spec, default_organisation()))


def break_option(monkeypatch: pytest.MonkeyPatch, module: Any, slug: str, where: int) -> None:
    """Makes the option of one accelerator fail; `where`: place of the scored deployment among the arguments."""
    real = module.option

    def option(*given: Any) -> Any:
        s = given[where]
        chip = s.lane.choice.accelerator if hasattr(s, "lane") else s.trained.accelerator
        if chip.slug == slug:
            raise ZeroDivisionError("drawn out of thin air")
        return real(*given)

    monkeypatch.setattr(module, "option", option)


@pytest.mark.parametrize(("question", "module", "where"), [(SERVING, advice, 2), (TUNING, training_advice, 1)])
@pytest.mark.usefixtures("lenient")
def test_the_other_accelerators_are_answered_as_if_it_did_not_exist(
    question: dict[str, Any], module: Any, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = answer({**question, "constraints": question["constraints"] | {"accelerators": {"allow": ["h200-sxm"]}}})
    break_option(monkeypatch, module, "h100-sxm", where)
    found = answer(question)
    assert [o.accelerator for o in found.recommendations] == [o.accelerator for o in alone.recommendations]
    assert found.recommendations[0].usd_per_month == alone.recommendations[0].usd_per_month
    assert [lost.what for lost in found.candidates.internal_rejections] == ["h100-sxm"]
    told = next(r for r in found.rejected if r.accelerator == "h100-sxm")
    assert told.reason == "internal_error" and "ZeroDivisionError" in told.detail and told.dead_end


@pytest.mark.usefixtures("lenient")
def test_a_section_that_fails_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenarios(*given: Any) -> Any:
        return min(())

    monkeypatch.setattr(advice.bill, "scenarios", scenarios)
    found = answer(SERVING)
    assert found.recommendations and not found.scenarios
    assert [lost.what for lost in found.candidates.internal_rejections] == ["scenarios"]


def test_tests_see_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    break_option(monkeypatch, advice, "h100-sxm", 2)
    with pytest.raises(ZeroDivisionError):
        answer(SERVING)


@pytest.mark.usefixtures("lenient")
def test_what_is_no_mistake_of_a_candidate_passes_unchanged() -> None:
    class LostLease(Exception):
        pass

    def stop(lost: internal_errors.Lost) -> None:
        raise LostLease

    with pytest.raises(LostLease):
        internal_errors.answered(stop)
