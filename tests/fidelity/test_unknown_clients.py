"""Why rows of unknown load generators correct nothing (docs/explanation/conditioning.md)."""

import pytest

from advisor.engine.terms import MODEL, STACK
from advisor.inputs import measured
from catalog.models import ScoredRow

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
SCORES = True


def test_they_share_no_stack_with_the_others() -> None:
    """If this fails, judge on held-out rows again whether they help."""
    rows = list(ScoredRow.objects.order_by("pk"))
    known = measured.observed_of(rows, measured.TPOT, measured.shapes())
    unknown = [row for row in rows if not row.client_known]
    for row in unknown:
        row.client_known = True
    others = measured.observed_of(unknown, measured.TPOT, measured.shapes())
    assert len(known) > 1000 and len(others) > 500
    assert {o.place.key(STACK) for o in known}.isdisjoint(o.place.key(STACK) for o in others)
    assert {o.place.key(MODEL) for o in known} & {o.place.key(MODEL) for o in others}
