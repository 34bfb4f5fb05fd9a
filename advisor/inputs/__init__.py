"""Reads the catalog into a snapshot and converts a snapshot to engine values."""

from advisor.inputs import measured, what_if
from advisor.inputs.check import check_catalog, unknown_names_in_parts
from advisor.inputs.current import (
    assumed_burstiness,
    catalog_chip,
    catalog_resources,
    host_copy_fraction,
    host_speed_range,
    market,
    resources_with,
    with_model,
)
from advisor.inputs.from_catalog import (
    CHIP_SCOPE,
    asked_on,
    assumption,
    calibrations,
    joined,
    laid_over,
    market_question,
    market_rows,
    measured_name,
    model_question,
    model_rows,
    shared_rows,
    take_snapshot,
)
from advisor.inputs.names import prices_seen_by, with_catalog_names
from advisor.inputs.prices import hosted_apis, offers
from advisor.inputs.prices.assumptions import (
    COLD_START,
    COSTS,
    EGRESS,
    HOST_SPEED,
    PATHS,
    RESALE_YEARS,
    STORAGE,
    SUPPLY,
    SWINGS,
    arrival_cv_key,
    price_path,
    serverless_of,
    with_one_team,
)
from advisor.inputs.prices.hosts import usual_host_watts
from advisor.inputs.prices.offers import new_usd_per_accelerator
from advisor.inputs.read_once import read_once
from advisor.inputs.rounding import number, rounded
from advisor.inputs.snapshot import Snapshot
from advisor.inputs.to_engine import (
    catalog_of,
    host_ratios,
    model_parts,
    quantization_of,
    training_workload,
    workload_of,
)
from advisor.inputs.training import REFERENCES, TRAINING_ASSUMPTIONS, figure_of, reliability_of
from catalog.loading.places import areas_of

__all__ = [
    "read_once",
    "with_one_team",
    "asked_on",
    "CHIP_SCOPE",
    "COLD_START",
    "arrival_cv_key",
    "COSTS",
    "HOST_SPEED",
    "EGRESS",
    "PATHS",
    "REFERENCES",
    "RESALE_YEARS",
    "SUPPLY",
    "SWINGS",
    "TRAINING_ASSUMPTIONS",
    "price_path",
    "STORAGE",
    "areas_of",
    "assumed_burstiness",
    "assumption",
    "calibrations",
    "catalog_chip",
    "catalog_of",
    "laid_over",
    "joined",
    "market_question",
    "market_rows",
    "model_question",
    "measured_name",
    "measured",
    "model_parts",
    "model_rows",
    "catalog_resources",
    "check_catalog",
    "figure_of",
    "hosted_apis",
    "market",
    "new_usd_per_accelerator",
    "number",
    "offers",
    "quantization_of",
    "reliability_of",
    "resources_with",
    "with_model",
    "shared_rows",
    "rounded",
    "serverless_of",
    "take_snapshot",
    "host_copy_fraction",
    "host_ratios",
    "host_speed_range",
    "training_workload",
    "unknown_names_in_parts",
    "Snapshot",
    "usual_host_watts",
    "prices_seen_by",
    "with_catalog_names",
    "what_if",
    "workload_of",
]
