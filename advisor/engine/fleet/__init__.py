"""Mixes of machines, portfolios of workloads, and several models on one chip."""

from advisor.engine.fleet.card_sharing import TIME, Merged, Way, merged, ways
from advisor.engine.fleet.colocation import Packed, Tenant, packed
from advisor.engine.fleet.milp import Limits, Machine
from advisor.engine.fleet.mix import Mix, Option, Part, mixed
from advisor.engine.fleet.portfolio import DAY_HOURS, Member, Run, Shared, shared

__all__ = [
    "DAY_HOURS",
    "Limits",
    "Machine",
    "Member",
    "Merged",
    "Mix",
    "Option",
    "Packed",
    "Part",
    "Run",
    "Shared",
    "TIME",
    "Tenant",
    "Way",
    "merged",
    "mixed",
    "packed",
    "shared",
    "ways",
]
