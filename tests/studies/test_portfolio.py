"""A portfolio's workloads are answered by several workers; the answer is the one that a single worker finds."""

from typing import Any

import pytest

from advisor import advise
from advisor.models import Advice, Study, StudyPiece
from advisor.studies import compute, parts, pieces
from catalog.models import default_organisation
from tests.studies import sample

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen", "messages", "woken")]
TUNE = {
    "name": "tune", "kind": "finetuning", "model": "meta-llama/Llama-3.1-8B",
    "finetuning": {"method": "lora", "tokens": 2e7},
    "constraints": {"accelerators": {"allow": ["h100-sxm"]}},
}  # fmt: skip


def asked(*others: Any) -> Advice:
    from advisor import workload

    chat = {**sample.WORKLOAD, "constraints": {"accelerators": {"allow": ["l40s"]}, "formats": {"allow": ["fp8"]}}}
    small = {**chat, "name": "small", "traffic": {"input_tokens": 300, "output_tokens": 50, "requests_per_s": 1}}
    raw = {"kind": "portfolio", "name": "both", "workloads": [chat, small, *others]}
    return advise.request(workload.parse(raw), default_organisation())


def compared(advice: Advice) -> Any:
    advice.refresh_from_db()
    assert (advice.state, advice.error) == ("done", "")
    assert advice.result is not None
    return {name: value for name, value in advice.result.items() if name != "elapsed_s"}


def test_parts_of_several_workers_give_the_answer_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, shared = asked(TUNE), asked(TUNE)
    advise.work(advise.claimed(alone.pk))  # type: ignore[arg-type]
    packed: list[int] = []

    def helped(advice: Advice, *given: Any) -> Any:
        """Another worker answers the first and the last workload before this one begins."""
        study = parts.study_of(advice, 3)
        StudyPiece.objects.filter(study=study, index=1).update(state="cancelled")
        while (claim := pieces.piece_of(study.pk)) is not None:
            pieces.work(claim)
        Study.objects.filter(pk=study.pk).update(state="running", finished_at=None)
        StudyPiece.objects.filter(study=study, index=1).update(state="queued")
        packed.extend(len(piece.part or b"") for piece in StudyPiece.objects.filter(study=study).order_by("index"))
        return parts.together(advice, *given)

    advise.work(advise.claimed(shared.pk), helped)  # type: ignore[arg-type]
    assert [size > 10_000 for size in packed] == [True, False, True]
    assert compared(shared) == compared(alone)
    assert not Study.objects.exists() and not StudyPiece.objects.exists()


def test_one_worker_answers_a_portfolio_alone() -> None:
    advice = asked()
    advise.work(advise.claimed(advice.pk), parts.together)  # type: ignore[arg-type]
    assert len(compared(advice)["portfolio"]["alone"]) == 2
    assert not Study.objects.exists()


def test_studies_of_portfolios_are_not_listed_and_end_with_them() -> None:
    advice = asked()
    parts.study_of(advice, 2)
    assert not pieces.visible(advice.organisation).exists()
    pieces.sweep()
    assert Study.objects.count() == 1
    advise.cancel(advice)
    pieces.sweep()
    assert not Study.objects.exists()


def test_a_part_that_another_service_wrote_is_not_read(settings: Any) -> None:
    written = compute.packed({"some": "value"})
    assert compute.unpacked(written) == {"some": "value"}
    assert compute.unpacked(written[:-1] + b"x") is None and compute.unpacked(None) is None
    settings.SECRET_KEY = "another"  # noqa: S105
    assert compute.unpacked(written) is None
