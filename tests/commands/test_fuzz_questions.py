"""Questions drawn at random are answered, have no answer, or are refused for something that was written."""

import pytest

from tests import fuzz_questions
from tests.fuzz_questions import Names, Outcome, asked, drawn, estimate_arguments, internal_faults, report

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
QUESTIONS, ESTIMATES, BLOCKS = 60, 40, 4
FEW_CHIPS = 2
SEED = 7000


@pytest.fixture
def names() -> Names:
    return fuzz_questions.names_of_catalog()


def failed(outcomes: dict[int, Outcome]) -> str:
    return "\n\n".join(report(each, seed) for seed, each in outcomes.items() if each.faults)


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(k, marks=pytest.mark.soak) for k in range(2, BLOCKS))])
def test_no_question_ends_in_a_traceback_or_a_refusal_of_what_nobody_wrote(block: int, names: Names) -> None:
    seeds = range(SEED + block, SEED + QUESTIONS, BLOCKS)
    assert failed({seed: asked(drawn(seed, names, FEW_CHIPS)) for seed in seeds}) == ""


def test_no_estimate_ends_in_a_traceback(names: Names) -> None:
    seeds = range(SEED, SEED + ESTIMATES)
    assert failed({seed: asked(estimate_arguments(seed, names)) for seed in seeds}) == ""


def test_the_same_seed_draws_the_same_question(names: Names) -> None:
    assert drawn(SEED, names, 5) == drawn(SEED, names, 5) != drawn(SEED + 1, names, 5)


def test_internal_rejections_beyond_one_in_a_hundred_are_a_fault() -> None:
    lost = [{"what": "h100-sxm", "detail": "not evaluated"}]
    assert internal_faults({"candidates": {"evaluated": 99, "internal_rejections": lost}})
    assert not internal_faults({"candidates": {"evaluated": 100, "internal_rejections": lost}})


def test_a_refusal_must_name_a_field_that_was_written() -> None:
    question = {"kind": "finetuning", "finetuning": {"tokens": 1e6}}
    assert fuzz_questions.refusal_faults(question, "micro_batches: interleaved stages need a multiple of pp, not 64")
    assert not fuzz_questions.refusal_faults(question, "finetuning.tokens: is too small")
    assert fuzz_questions.refusal_faults(question, "Traceback (most recent call last)")
    assert fuzz_questions.refusal_faults(question, "")
