"""Which change of the workload would give an unsupported chip a lane: its constraints, adapters or answers' format."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.engine.kernels import HALF
from advisor.engine.network import Model
from advisor.engine.search.candidates import ALLOWED_QUALITY, QUALITY_RANK, Question, enumerate_lanes
from advisor.engine.step import (
    Lane,
    quality_of,
)
from advisor.engine.terms import QUALITY_ANY, Change, Constraints, Rejection, allowing, listed

NO_ADAPTERS = Change(field="adapters.count", value=0, said="adapters.count: 0")
NO_GRAMMAR = Change(field="structured_output", value="no", said="structured_output: no")
NO_LAYOUT = Change(field="constraints.layout", value=None, said="no constraints.layout")
NO_BUDGET = Change(field="constraints.max_batched_tokens", value=None, said="no constraints.max_batched_tokens")


def with_support_changes(question: Question, refused: Sequence[Rejection]) -> list[Rejection]:
    """The rejections of chips without a lane, each with the fewest changes that give it one, else a dead end."""
    slugs = {r.accelerator for r in refused if not r.dead_end}
    least = _least_changes(question, slugs)
    for simpler, change in _simpler(question):
        without = _least_changes(simpler, slugs - set(least))
        least |= {slug: (*changes, change) for slug, changes in without.items()}
    return [_with_change(r, least.get(r.accelerator, ())) if r.accelerator in slugs else r for r in refused]


def _simpler(question: Question) -> Iterator[tuple[Question, Change]]:
    """The question without a feature that some frameworks lack."""
    model = question.catalog.model
    if model.adapters is not None:
        plain = replace(question.catalog, model=replace(model, adapters=None))
        yield replace(question, catalog=plain), NO_ADAPTERS
    if question.workload.structured_output:
        yield replace(question, workload=replace(question.workload, structured_output=False)), NO_GRAMMAR
    c = question.workload.constraints
    if any(c.layout):
        free = replace(c, layout=(0, 0, 0, 0))
        yield replace(question, workload=replace(question.workload, constraints=free)), NO_LAYOUT
    if c.max_batched_tokens is not None:
        free = replace(c, max_batched_tokens=None)
        yield replace(question, workload=replace(question.workload, constraints=free)), NO_BUDGET


def _with_change(r: Rejection, changes: tuple[Change, ...]) -> Rejection:
    if not changes:
        return replace(r, dead_end=r.detail)
    return replace(r, smallest_change=f"supported with {listed(changes)}", changes=changes)


def _least_changes(question: Question, slugs: set[str]) -> dict[str, tuple[Change, ...]]:
    """Per chip that has a lane without the constraints, the fewest changes that allow one."""
    workload = question.workload
    c = replace(
        workload.constraints,
        frameworks_allow=(),
        frameworks_deny=(),
        formats_allow=(),
        formats_deny=(),
        kv_formats_allow=(),
        kv_formats_deny=(),
        quality="any",
        partitions="yes",
    )
    asked = replace(workload, constraints=c)
    chips = [a for a in question.catalog.accelerators if a.slug in slugs]
    least: dict[str, tuple[Change, ...]] = {}
    for lane in enumerate_lanes(replace(question, workload=asked), chips)[0] if chips else []:
        slug, changes = lane.choice.accelerator.slug, lane_changes(lane, workload.constraints, question.catalog.model)
        if slug not in least or _cost(changes) < _cost(least[slug]):
            least[slug] = changes
    return least


def _cost(changes: Sequence[Change]) -> tuple[int, int]:
    """Fewest changes first; of as many, those that keep the formats that the planner named."""
    return len(changes), sum(change.field.startswith("constraints.formats") for change in changes)


def lane_changes(lane: Lane, c: Constraints, model: Model) -> tuple[Change, ...]:
    """The changes of the constraints on software that allow this lane."""
    choice = lane.choice
    q = choice.quantization
    changes = [
        *allowing("constraints.frameworks", lane.framework.slug, c.frameworks_allow, c.frameworks_deny),
        *allowing("constraints.formats", q.slug, c.formats_allow, c.formats_deny),
        *allowing("constraints.kv_formats", choice.kv_dtype, c.kv_formats_allow, c.kv_formats_deny),
    ]
    quality = quality_of(model, q)
    if QUALITY_RANK[quality] > ALLOWED_QUALITY[c.quality]:
        changes.append(_quality(quality))
    elif choice.kv_dtype not in HALF and c.quality == "lossless":
        changes.append(_quality("near_lossless"))
    if c.partitions == "required" and not choice.accelerator.cut:
        changes.append(Change(field="constraints.partitions", value="auto", said="partitions: auto"))
    return tuple(changes)


def _quality(of: str) -> Change:
    """The strictest quality limit that allows this quality."""
    if QUALITY_RANK[of] > ALLOWED_QUALITY["near_lossless"]:
        return QUALITY_ANY
    return Change(field="constraints.quality", value=of, said=f"quality: {of}")
