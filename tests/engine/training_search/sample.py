"""A small training question: Llama 8B on one GPU that a cloud rents and a shop sells."""

from dataclasses import replace
from functools import cache
from typing import Any

from advisor.engine.cost.hourly import (
    capital_shares,
    capital_usd,
    list_rent_parts,
    own_parts,
    rent_parts,
    total_usd_per_hour,
)
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.terms.workloads.kinds import FINETUNING
from advisor.engine.terms.workloads.workload import Constraints, Slo, TrainingTask, Workload
from advisor.engine.training.cluster import SPOT_WAIT_S, FailureRates, Spot
from advisor.engine.training_search.layouts import Setup, Trained, trained
from advisor.engine.training_search.outcome import Reliability
from advisor.engine.training_search.search import Found, search
from tests.engine.catalog_sample import ASSUMED, GIB, LLAMA_8B, catalog, chip, offer, question

LLAMA = LLAMA_8B

BIG = chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4.8e12)
SETUP = Setup(framework="megatron-bridge", precision="bf16")
RELIABILITY = Reliability(
    failures=FailureRates(), blocked_fraction=0.042, spot=Spot(), instance_wait_s=SPOT_WAIT_S, straggler_fraction=0.015
)
NEVER_FAILS = replace(
    RELIABILITY,
    failures=FailureRates(
        failures_per_chip_day=replace(FailureRates().failures_per_chip_day, value=0.0, low=0.0, high=0.0)
    ),
)
USD_PER_HOUR = 20.0  # of an instance with eight chips
SERVER_USD = 250_000.0


def rented(term: str = "on_demand", usd_per_hour: float = USD_PER_HOUR, fabric: int = 64, **changes: Any) -> Offer:
    parts = rent_parts(usd_per_hour, term, ASSUMED, 8)
    values: dict[str, Any] = dict(
        term=term, parts=parts, list_parts=list_rent_parts(usd_per_hour, term, ASSUMED, 8), fabric_accelerators=fabric
    )
    return offer("big", total_usd_per_hour(parts), 8, **values | changes)


def bought(usd: float = SERVER_USD, fabric: int = 64, **changes: Any) -> Offer:
    parts = own_parts(usd, 8, 6_000.0, ASSUMED)
    values: dict[str, Any] = dict(
        acquisition="own", term="purchase", parts=parts, capital_usd=capital_usd(usd, ASSUMED), purchase_usd=usd,
        capital_shares=capital_shares(usd, ASSUMED), resale=ASSUMED.resale(), provider="shop", region="",
        fabric_accelerators=fabric,
    )  # fmt: skip
    return replace(offer("big", total_usd_per_hour(parts), 8, **values), **changes)


def asked(constraints: dict[str, Any] | None = None, objective: str = "cost", **task: Any) -> Workload:
    """10 billion tokens within ten days, unless asked otherwise."""
    values: dict[str, Any] = dict(tokens=1e10, sequence_tokens=4096, global_batch=256, deadline_days=10.0)
    return question(
        kind=FINETUNING, slo=Slo(), training=TrainingTask(**values | task), objective=objective,
        constraints=Constraints(**{"acquisition": ("rent", "own")} | (constraints or {})),
    )  # fmt: skip


def sold(*offers: Offer) -> Catalog:
    return catalog(accelerators=(BIG,), offers=offers)


@cache
def on_chips(chips: int) -> Trained:
    """The fastest layout on so many chips."""
    found = trained(Question(asked(), sold(rented())), BIG, SETUP, chips)
    assert found is not None
    return found


def found_for(workload: Workload, *offers: Offer, reliability: Reliability = RELIABILITY) -> Found:
    return search(Question(workload, sold(*offers)), reliability)
