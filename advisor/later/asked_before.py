"""Reuses the stored answer to the same question if nothing that it depends on has changed.

A key that costs one query finds an earlier answer of the organization to the same question on the same day, from the
same state of the catalog and of its own rows. Then the catalog rows that the question reads are compared with the
stored snapshot, one by one, so that a change that the key does not show is not missed.
"""

import hashlib
import json
from typing import Any

from django.db.models import Q

from advisor import inputs
from advisor.engine import ENGINE_VERSION
from advisor.inputs import Snapshot
from advisor.models import Advice
from advisor.stored import RESULT_VERSION
from catalog import clock
from catalog.models import Organisation
from catalog.revision import program, revision

Json = dict[str, Any]


def key_of(spec: Json, organisation: Organisation) -> str:
    """A digest of everything that the answer to a question depends on; empty: it wants measurements made for it."""
    if spec.get("probe", "no") != "no":
        return ""
    about = [
        organisation.pk, spec, str(clock.today()), ENGINE_VERSION, RESULT_VERSION, program(), revision(),
        inputs.measured.own_state(organisation),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def answered(spec: Json, organisation: Organisation) -> Advice | None:
    """The complete answer that may be given again; None: the question must be computed."""
    key = key_of(spec, organisation)
    if not key:
        return None
    complete = Q(completion=None) | Q(completion__state=Advice.State.DONE)
    rows = Advice.objects.filter(complete, organisation=organisation, question_key=key, state=Advice.State.DONE)
    rows = rows.filter(engine_version=ENGINE_VERSION, probed__isnull=True).select_related("workload").defer("result")
    found = rows.order_by("-finished_at").first()
    if found is None or found.workload.spec != spec:
        return None
    now = inputs.take_snapshot(spec, organisation)
    return found if _as_stored(now) == found.snapshot else None


def _as_stored(snapshot: Snapshot) -> Any:
    return json.loads(json.dumps(snapshot.stored()))
