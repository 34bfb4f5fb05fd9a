"""Reads the catalog into a snapshot and converts a snapshot to engine values."""

from advisor.inputs import measured, what_if
from advisor.inputs.check import check_catalog, unknown_names_in_parts
from advisor.inputs.current import (
    assumed_burstiness,
    catalog_chip,
    catalog_resources,
    corrections,
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
