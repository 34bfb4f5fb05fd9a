"""Fleet planning: machine mixes, portfolios of workloads, several models per card."""

from advisor.engine.fleet.card_sharing import TIME_SLICES, MergedCopies, SharingOption, merged_copies, sharing_options
from advisor.engine.fleet.colocation import Packing, Tenant, pack_models
from advisor.engine.fleet.host_loss import HostLoss, host_loss
from advisor.engine.fleet.milp import Limits, Machine
from advisor.engine.fleet.mix import MachineOption, Mix, MixPart, find_mix
from advisor.engine.fleet.portfolio import (
    DAY_HOURS,
    Assignment,
    Member,
    SharedFleet,
    plan_shared_fleet,
    spared_team_usd_by_month,
)
from advisor.engine.fleet.train_and_serve import IdleHours, OnePlan, TrainingMember, idle_hours, one_plan
