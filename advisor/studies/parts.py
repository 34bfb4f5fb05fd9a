"""A portfolio cut into pieces: several workers answer its workloads, and the one that has the advice joins them.

The pieces are those of a study that is not listed. The worker that answers the portfolio takes pieces like the others
and waits for theirs. What it cannot read of another worker it computes itself.
"""

import time
from functools import partial
from typing import Any

from django.db import transaction

from advisor import answer, leases
from advisor.inputs import Snapshot
from advisor.leases import OPEN, persistently
from advisor.models import Advice, Study, StudyPiece
from advisor.studies import compute, pieces
from advisor.studies.pieces import ANSWERS, PieceClaim

Json = dict[str, Any]
WAIT_S = 0.2


def together(advice: Advice, spec: Json, snapshot: Snapshot, report: Any) -> list[Any]:
    """The parts of a portfolio, computed by every worker that has time. `report` is called between them."""
    study, count = persistently(partial(study_of, advice, len(spec["workloads"]))), len(spec["workloads"])
    own: dict[int, Any] = {}
    while StudyPiece.objects.filter(study=study, state__in=OPEN).exists():
        claim = persistently(partial(pieces.piece_of, study.pk))
        if claim is None:
            leases.end(PieceClaim)
            time.sleep(WAIT_S)
        else:
            leases.work(claim, partial(_compute_here, spec, snapshot, report, count, own), piece=str(claim.pk))
        ended = StudyPiece.objects.filter(study=study).exclude(state__in=OPEN).count()
        report("answering its workloads", ended / (count + 1))
    stored = dict(StudyPiece.objects.filter(study=study).values_list("index", "part"))
    Study.objects.filter(pk=study.pk).delete()
    found = []
    for i, (part, its_snapshot) in enumerate(zip(spec["workloads"], snapshot.parts, strict=True)):
        known = own.get(i) or compute.unpacked(stored[i])
        found.append(known or answer.part_of_portfolio(part, its_snapshot, named(report, part, i, count)))
    return found


@transaction.atomic
def study_of(advice: Advice, count: int) -> Study:
    """The study of a portfolio: that of an earlier attempt, or a new one."""
    if earlier := Study.objects.filter(advice=advice).first():
        return earlier
    study = Study.objects.create(
        organisation=advice.organisation,
        advice=advice,
        name=advice.workload.name,
        kind=Study.Kind.PORTFOLIO,
        points=count,
        made_by=advice.made_by,
        state=Study.State.RUNNING,
        phase=ANSWERS,
        prices_as_of=advice.created_at.date(),
    )
    StudyPiece.objects.bulk_create(
        StudyPiece(study=study, phase=ANSWERS, index=i, points=[{"index": i}], size=1) for i in range(count)
    )
    transaction.on_commit(partial(pieces.send, study.pk, study.wave, min(count - 1, pieces.MESSAGES)))
    return study


def named(report: Any, part: Json, i: int, count: int) -> Any:
    return lambda stage, done: report(f"{part['name']}: {stage}", (i + done) / (count + 1))


def _compute_here(
    spec: Json, snapshot: Snapshot, report: Any, count: int, own: dict[int, Any], claim: PieceClaim
) -> None:
    """A part that the portfolio's own worker keeps."""
    i = StudyPiece.objects.values_list("index", flat=True).get(pk=claim.pk)
    part = spec["workloads"][i]

    def told(stage: str, done: float) -> None:
        claim.check()
        report(f"{part['name']}: {stage}", len(own) / (count + 1))

    own[i] = answer.part_of_portfolio(part, snapshot.parts[i], told)
    persistently(partial(claim.finish, [], 0.0, 0.0))
