"""Published layouts of training runs against the fastest that the search finds for the same chips and batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.engine import training
from advisor.engine.terms import efficiency
from advisor.engine.training import Run
from advisor.fidelity.rows import Row
from advisor.fidelity.training.rows import TIMES, TrainingCase, training_case
from tests.laboratory.training.scores import Resources

PUBLISHED = ("megatron_bridge", "megatron_lm", "nemo_24.07")  # sources whose layouts were tuned on the chips


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One published layout: its predicted step over that of the fastest layout found."""

    case: TrainingCase
    published: Run
    best: Run
    published_s: float
    best_s: float
    fits: bool  # the published layout, as predicted
    candidates: int

    @property
    def ratio(self) -> float:
        return self.published_s / self.best_s


def compare(rows: Iterable[Row], resources: Resources) -> list[Compared]:
    """Each distinct published layout once, in the order of the rows."""
    return [found for case in _cases(rows, resources) if (found := _compared(case, resources)) is not None]


def _cases(rows: Iterable[Row], resources: Resources) -> Iterator[TrainingCase]:
    seen = set()
    for row in rows:
        case = training_case(row) if row.source_key in PUBLISHED and row.metric in TIMES else None
        if not isinstance(case, TrainingCase) or case in seen or case.model_id not in resources.models:
            continue
        seen.add(case)
        if isinstance(case.run, Run) and case.accelerator_slug in resources.accelerators:
            yield case


def _compared(case: TrainingCase, resources: Resources) -> Compared | None:
    """None: no layout fits by the prediction."""
    run, chip, model = case.run, resources.accelerators[case.accelerator_slug], resources.models[case.model_id]
    assert isinstance(run, Run)
    job = training.Job(
        model=model, accelerator=chip, efficiency=efficiency(resources.scopes, chip.slug, chip.family, chip.kind),
        chips=run.parallel.chips, sequence_tokens=run.sequence_tokens, recipe=run.recipe, code=run.code,
        global_batch=run.micro_batch * run.micro_batches * run.parallel.dp, uneven_stages=True,
    )  # fmt: skip
    found = training.fastest(job, count=1)
    if not found.layouts:
        return None
    rates = training.rates_of(chip, job.efficiency, run.recipe, run.code)
    return Compared(
        case=case,
        published=run,
        best=found.layouts[0].run,
        published_s=float(training.step_time(model, training.Shape.of(run), rates, run).step_s),
        best_s=found.layouts[0].step_s,
        fits=training.fits(training.peak_memory(model, run), chip.memory_bytes, training.outside_bytes(run)),
        candidates=found.candidates,
    )


def within(compared: Sequence[Compared], most: float = 1.05) -> float:
    """The share of published layouts within this ratio of the fastest found."""
    return sum(c.ratio <= most for c in compared) / len(compared) if compared else 0.0


def layout_text(run: Run) -> str:
    """tp4 pp8 v5 dp2, micro-batch 1, selective recomputation"""
    p = run.parallel
    sizes = [("tp", p.tp), ("pp", p.pp), ("v", p.virtual_stages), ("cp", p.cp), ("ep", p.ep)]
    parts = [*(f"{name}{n}" for name, n in sizes if n > 1), f"dp{p.dp}", *(["ZeRO 3"] if p.zero == 3 else [])]
    again = f", {run.recompute} recomputation" if run.recompute != "none" else ""
    return f"{' '.join(parts)}, micro-batch {run.micro_batch}{again}"
