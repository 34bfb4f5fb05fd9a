"""A small answer with the fields that the road writes to rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from advisor.result import Answer

if TYPE_CHECKING:  # loads models: slow_worker imports this module before Django is set up
    from advisor.inputs.snapshot import Snapshot


def snapshot(spec: dict[str, Any], organisation: object) -> "Snapshot":
    from advisor.inputs.snapshot import Snapshot

    return Snapshot(engine_version="test", catalog_version="test", prices_as_of="2026-11-01")


def recommend(
    spec: dict[str, Any], snapshot: "Snapshot | None", progress: Callable[[str, float], None] | None = None
) -> Answer:
    from tests import sample_advice

    if progress:
        progress("searching", 0.5)
    answer = Answer.read(sample_advice.result())
    figures = {"accelerator": "h200-sxm", "accelerator_count": 4, "usd_per_month": 100.5, "usd_per_mtok_output": 1.25}
    options = [answer.recommendations[0].changed(rank=rank, **figures) for rank in (1, 2)]
    return answer.changed(workload=spec, recommendations=options, rejected=[])


def in_one_step(compute: Callable[..., Answer]) -> Callable[..., Any]:
    """`answer.verdict_first` with `compute` in place of `answer.recommend`, and nothing left after the verdict."""

    def verdict_first(*given: Any) -> Any:
        from advisor.answer.advice import Verdict

        return Verdict(answer=compute(*given), complete=None)

    return verdict_first


def spec(**values: Any) -> dict[str, Any]:
    """A validated question."""
    from advisor import workload

    traffic = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}
    return workload.parse({"name": "small", "model": "meta-llama/Llama-3.3-70B-Instruct", "traffic": traffic, **values})


def queued() -> Any:
    """A queued advice of its own workload."""
    from advisor import advise
    from advisor.models import Workload

    organisation = advise.default_organisation()
    return advise.queue(Workload.objects.create(organisation=organisation, name="small", spec=spec()))
