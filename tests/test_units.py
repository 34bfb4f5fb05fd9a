"""The unit ends every name: engine values in SI, columns in the units that people read."""

import dataclasses
import importlib
import pkgutil
import re
import typing
from collections.abc import Iterator

import numpy as np
import pytest
from django.apps import apps
from django.db import models

from advisor import engine

ENGINE_UNITS = "s bytes bits flops watts usd kgco2e kwh tokens requests sequences fraction years year months"
COLUMN_UNITS = "s ms gib mib gb tflops ghz watts usd kgco2e kwh tokens parameters fraction years year days"
# Counts that name what they count.
COUNTED = "chips accelerators replicas instances kernels steps layers heads experts index answers estimates machines"
PER = "s sequence token pair layer logit chip accelerator request run step hour kwh kw_month month year user weight "
PER += "day byte byte_month chip_hour output_token mtok_output mtok_input mtok_cached_input context_token expert_layer"
STATISTICS = "mean peak max min p50 p95 p99"
# Pure numbers: sizes of a network's parts, degrees of parallelism, ranks and the few ratios that have a name.
BARE = set(
    """
    heads kv_heads head_dim v_head_dim q_rank kv_rank nope_dim rope_dim v_dim index_heads index_dim index_top_k
    inner state groups conv dt_rank matrices experts top_k shared_inner count norms hidden vocab position_embeddings
    tp pp ep dp moe_tp replicas spare_replicas concurrency max_batch
    cores sockets socket_cores numa_nodes chips accelerators chips_per_host near_chips vcpus attempt rank racks
    pue input_cv2 output_cv2 roof_exponent matmul_factor memory_factor prefill_factor expert_factor collective_factor
    matrix_factor routing_evenness beams bound_factor
    year seed preemptions steps requests devices kubernetes_devices preference
    """.split()
)
# Lengths by their usual names, yes/no arrays, shares by hour, and settings keyed by name.
BARE |= {"isl", "osl", "week", "fits", "kv_limited", "saturating", "window_pattern", "options", "scopes"}
# Numbers of candidates, and positions in a table.
BARE |= {"evaluated", "pruned", "feasible", "row", "column", "columns", "rows", "offer", "month"}
# What they count is their name.
BARE |= {"classes", "hours", "machines", "active"}
# Counts of catalog rows, a planner's weights and levels, places in a ranking, and a sum of scores.
BARE |= {
    "frameworks",
    "providers",
    "vendors",
    "releases",
    "weights",
    "team",
    "views",
    "lacking",
    "score",
    "at",
    "winner_after",
}
# One figure over another of the same unit; places in a ranking.
BARE |= {"gain_ratio", "plan_ratio", "variants", "stretch"}
BARE |= {"created_rows", "changed_rows", "unchanged_rows"}
# Numbers of a form, not of a quantity.
BARE |= {"result_version"}
# Of studies: rows of the results, and numbers that order pieces and messages.
BARE |= {"points", "size", "index", "phase", "wave"}
# Of a webhook's delivery: tries so far, and the HTTP status of the last.
BARE |= {"attempts", "last_status"}
# A bound and what was reached, in the unit that the row beside them states.
BARE |= {"listed_price", "limit", "reached", "value", "low", "high", "measured", "predicted"}


def pattern(units: str) -> re.Pattern[str]:
    any_of = {key: "|".join(words.split()) for key, words in (("unit", units), ("per", PER), ("stat", STATISTICS))}
    return re.compile(r"(^|.*_)({unit})(_per_({per}))*(_({stat}))?$".format(**any_of))


ENGINE_NAME, COLUMN_NAME = pattern(f"{ENGINE_UNITS} {COUNTED}"), pattern(f"{COLUMN_UNITS} {COUNTED}")


def leaves(annotation: object) -> Iterator[object]:
    arguments = typing.get_args(annotation)
    if not arguments or typing.get_origin(annotation) is np.ndarray:
        yield typing.get_origin(annotation) or annotation
    for argument in arguments:
        yield from leaves(argument)


def engine_names() -> Iterator[tuple[str, str]]:
    for info in pkgutil.iter_modules(engine.__path__):
        module = importlib.import_module(f"advisor.engine.{info.name}")
        for value in vars(module).values():
            public = isinstance(value, type) and not value.__name__.startswith("_")
            if public and dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
                for name, hint in typing.get_type_hints(value).items():
                    if {int, float, np.ndarray} & set(leaves(hint)):
                        yield f"{info.name}.{value.__name__}", name


def column_names() -> Iterator[tuple[str, str]]:
    """Columns of people's units; a measurement keeps SI, as the agent sends it."""
    numeric = (models.FloatField, models.DecimalField, models.IntegerField)
    for app in ("advisor", "catalog", "probes"):
        for model in apps.get_app_config(app).get_models():
            for column in model._meta.concrete_fields:
                key = column.primary_key or column.name == "id"
                if isinstance(column, numeric) and not key and model.__name__ != "Measurement":
                    yield model.__name__, column.name


def test_engine_quantities_are_named_in_si() -> None:
    wrong = [f"{owner}.{name}" for owner, name in engine_names() if name not in BARE and not ENGINE_NAME.match(name)]
    assert wrong == []


def test_columns_are_named_in_the_units_that_people_read() -> None:
    wrong = [f"{owner}.{name}" for owner, name in column_names() if name not in BARE and not COLUMN_NAME.match(name)]
    assert wrong == []


def test_columns_of_a_measurement_are_named_in_si() -> None:
    numeric = (models.FloatField, models.IntegerField)
    columns = apps.get_model("probes", "Measurement")._meta.concrete_fields
    names = [c.name for c in columns if isinstance(c, numeric) and not c.primary_key]
    assert [name for name in names if name not in BARE and not ENGINE_NAME.match(name)] == []


@pytest.mark.parametrize(
    "name", ["memory", "bandwidth", "memory_gib", "tflops", "latency_ms", "price", "usd_per_gpu", "tokens_per_second"]
)
def test_a_name_without_an_si_unit_is_seen(name: str) -> None:
    assert not ENGINE_NAME.match(name)


@pytest.mark.parametrize("name", ["memory_bytes", "ttft_p95_s", "requests_per_s_peak", "usd_per_hour", "host_s"])
def test_a_name_with_an_si_unit_passes(name: str) -> None:
    assert ENGINE_NAME.match(name)
