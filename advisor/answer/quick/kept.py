"""What quick answers keep in the process, for the few catalogs and models asked about last."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from advisor.answer.advice import served_workload
from advisor.answer.question import Question
from advisor.engine.search import Catalog, KnownLanes, prepare_question
from advisor.inputs import (
    HOST_SPEED,
    Snapshot,
    asked_on,
    catalog_of,
    market_rows,
    measured,
    model_parts,
    model_rows,
    offers,
)
from catalog.models import Organisation
from catalog.revision import revision as revision_of_catalog

Json = dict[str, Any]
Value = TypeVar("Value")
MARKETS_KEPT, MODELS_KEPT, LANES_KEPT, ANSWERS_KEPT = 4, 16, 6, 32
BUSY_S = 3.0


class Busy(Exception):
    """Other quick answers keep this process busy; try again in a moment."""


# --- what is kept -----------------------------------------------------------------------------------------------


class Kept:
    """The last values by key. A value is computed once: others that need it wait."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.values: OrderedDict[object, Any] = OrderedDict()
        self.lock = threading.RLock()

    def get(self, key: object, make: Callable[[], Value]) -> Value:
        with self.lock:
            if key not in self.values:
                self.values[key] = make()
            self.values.move_to_end(key)
            while len(self.values) > self.most:
                self.values.popitem(last=False)
            found: Value = self.values[key]
            return found

    def clear(self) -> None:
        with self.lock:
            self.values.clear()


MARKETS, CATALOGS, MODELS = Kept(MARKETS_KEPT), Kept(MARKETS_KEPT), Kept(MODELS_KEPT)
LANES, ANSWERS = Kept(LANES_KEPT), Kept(ANSWERS_KEPT)
WORK = threading.Semaphore(1)  # rankings at a time in one process: more would only take longer each
# what lanes do not depend on; the rates are part of KnownLanes
NOT_OF_LANES = (
    "name", "slo", "objective", "weights", "team", "owned", "inventory", "usd_per_accelerator_hour", "price_ratios",
    "batch", "constraints", "tco", "traffic",
)  # fmt: skip
OF_LANES = ("frameworks", "formats", "kv_formats", "quality", "partitions")  # of the constraints
RATES = ("requests_per_s", "users", "load_curve", "growth_fraction_per_year", "ramp_months", "ends_after_months")


def key_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def market_key(spec: Json) -> str:
    """What the catalog's rows depend on. Allow lists of accelerators filter candidates, so all rows are read."""
    c = spec["constraints"]
    parts = [c["providers"]["allow"], c["terms"], c["exclude"], c["site"].get("region"), sorted(spec["owned"])]
    return key_of([*parts, any(c["regions"].values()), asked_on(spec), spec["tco"].get("currency")])


def lanes_key(spec: Json) -> str:
    rest = {key: value for key, value in spec.items() if key not in NOT_OF_LANES}
    traffic = {key: value for key, value in spec["traffic"].items() if key not in RATES}
    limits = {key: spec["constraints"].get(key) for key in OF_LANES}
    return key_of([rest, traffic, limits, spec["tco"].get("power_cap_fraction"), spec["tco"].get(HOST_SPEED)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared(Question):
    """A question with everything that its ranking reads."""

    lanes: KnownLanes


def revision_for(organisation: Organisation | None) -> str:
    """Changes with the catalog and with the organization's load tests, which correct its answers."""
    return f"{revision_of_catalog()}:{measured.own_state(organisation)}"


def prepared(spec: Json, organisation: Organisation | None, revision: str) -> Prepared:
    """The question against today's catalog, from what is kept of it."""
    everything = {**spec, "constraints": {**spec["constraints"], "accelerators": {"allow": [], "deny": []}}}
    state = (revision, organisation.pk if organisation else None, market_key(spec))
    market = MARKETS.get(state, lambda: market_rows(everything, organisation))
    ratios = spec.get("price_ratios") or {}
    parts = [spec["model"], spec["kind"], spec["traffic"], spec.get("use_measurements"), asked_on(spec)]
    of_model = (revision, organisation.pk if organisation else None, key_of(parts))
    model = MODELS.get(of_model, lambda: model_rows(spec, organisation))
    return prepared_on(spec, offers.at_price_ratios(Snapshot(**market, **model), ratios), state)


def prepared_on(spec: Json, snapshot: Snapshot, state: object) -> Prepared:
    """The question on a snapshot, from what is kept of others with the same rows of the market, which `state` names."""
    ratios = spec.get("price_ratios") or {}
    of_catalog = key_of([spec["tco"], spec["owned"], spec.get("usd_per_accelerator_hour"), ratios])
    catalog = CATALOGS.get((state, of_catalog), lambda: catalog_of(spec, snapshot))
    catalog = replace(catalog, **model_parts(spec, snapshot))
    lanes = LANES.get((state, lanes_key(spec)), KnownLanes)
    return prepared_from(spec, snapshot, catalog, lanes)


def prepared_from(spec: Json, snapshot: Snapshot, catalog: Catalog, lanes: KnownLanes) -> Prepared:
    asked = Prepared(served_workload(spec, snapshot), catalog, spec=spec, snapshot=snapshot, lanes=lanes)
    return prepare_question(asked)


def forget() -> None:
    """Drops everything that is kept."""
    for kept in (MARKETS, CATALOGS, MODELS, LANES, ANSWERS):
        kept.clear()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Waits for the ranking that this process computes. Raises Busy after BUSY_S."""
    if not WORK.acquire(timeout=BUSY_S):
        raise Busy
    try:
        yield
    finally:
        WORK.release()
