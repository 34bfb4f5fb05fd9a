"""The calibration: which rows it looks at, what it leaves out, and the files it writes."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from advisor.engine import ENGINE_VERSION
from advisor.engine.estimate import estimate_all
from advisor.engine.terms.workloads.case import Case
from advisor.fidelity import scoring, stored
from advisor.fidelity.rows import case_of
from advisor.inputs import catalog_resources
from catalog.loading import fixtures
from tests.engine.calibration.test_kernels import CHIP
from tests.laboratory import calibrate, calibration_files, least_squares
from tests.laboratory.commands import calibrate as command
from tests.laboratory.report import older_fit, stamp
from tests.measured_samples import CATALOG, row
from tests.probes import samples

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "fidelity.md"


def used(**changes):
    r = row(**changes)
    case = case_of(r, CATALOG)
    assert isinstance(case, Case)
    return calibrate.Used(row=r, case=case, kind=calibrate.kind_of(r, case), group=calibrate.group_of(r))


@pytest.mark.parametrize(
    ("changes", "looked_at"),
    [
        ({}, True),
        ({"metric": "ttft_ms_mean"}, True),
        ({"metric": "tpot_ms_p99"}, False),
        ({"value": "0"}, False),
        ({"source_key": "mlperf_inf_5.1", "task": "server_throughput", "metric": "output_tokens_per_s"}, False),
        ({"source_key": "mlperf_inf_5.1", "task": "offline_throughput", "metric": "output_tokens_per_s"}, True),
    ],
)
def test_the_fit_looks_at_means_that_nobody_tuned(changes, looked_at):
    one = used(**changes)
    assert calibrate.usable(one.row, one.case) is looked_at


def test_a_row_whose_client_is_unknown_says_little_of_waiting():
    weights = yaml.safe_load((calibration_files.CALIBRATION / "fit" / "parameters.yaml").read_text())["weights"]
    known, unknown = (used(metric="ttft_ms_mean", source_key=key) for key in ("serving_nightly", "elsewhere"))
    assert calibrate.weight_of(unknown, weights) < calibrate.weight_of(known, weights) / 100


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        ("accelerator", "h100-sxm"),
        ("model", "meta-llama/Llama-3.1-8B"),
        ("family", "hopper"),
        ("framework version", "vllm 0.19.0"),
    ],
)
def test_a_row_leaves_with_its_whole_unit(kind, unit):
    assert calibrate.unit_of(used(), kind, {"h100-sxm": "hopper"}) == unit


class Engine:
    """Evidence over one parameter: every figure is proportional to it."""

    def __init__(self, rows, errors):
        self.rows, self.at, self.weights, self.asked = rows, np.asarray(errors), np.ones(len(rows)), []

    def errors(self, scopes, resources):
        self.asked.append(scopes)
        return self.at + np.log(scopes["default"]["kernel_s"])

    def only(self, rows):
        return Engine([r for r, wanted in zip(self.rows, rows, strict=True) if wanted], self.at[rows])


CHIPS = ("h100-sxm", "h200-sxm", "b200")
KNOWN = SimpleNamespace(
    accelerators={
        slug: SimpleNamespace(family=family)
        for slug, family in zip(CHIPS, ("hopper", "hopper", "blackwell"), strict=True)
    }
)
SETUP = SimpleNamespace(
    scopes={"default": {}, "family:hopper": {"a": 1.0}, "accelerator:h200-sxm": {"a": 1.0}},
    parameters=(least_squares.Parameter(scope="default", name="kernel_s", value=1.0, low=0.01, high=100.0),),
    groups=("kernels",),
    measured_scopes={"h200-sxm": ("family:hopper", "accelerator:h200-sxm")},
)


def left_out(kind, levels):
    """Errors with units left out, of chips whose rows each want another value of the parameter."""
    rows = [used(accelerator_slug=slug) for slug in CHIPS for _ in range(40)]
    engine = Engine(rows, -np.repeat(np.log(levels), 40))
    x = np.array([np.log(np.median(levels))])
    solution = least_squares.Solution(x=x, errors=engine.at + x[0], jacobian=np.ones((120, 1)))
    found = SimpleNamespace(evidence=engine, solution=solution)
    return calibrate.held_out(found, KNOWN, SETUP, kind).reshape(3, 40)[:, 0]


def test_rows_of_a_left_out_chip_do_not_reach_its_own_prediction():
    """The third chip's level moves what is predicted of it (its error) only by the level itself."""
    near, far = left_out("accelerator", (1.0, 1.0, 2.0)), left_out("accelerator", (1.0, 1.0, 8.0))
    assert near[2] == pytest.approx(-np.log(2), abs=0.01)
    assert far[2] == pytest.approx(-np.log(8), abs=0.01)


def test_a_family_leaves_as_a_whole():
    errors = left_out("family", (1.0, 2.0, 4.0))
    assert errors[0] == pytest.approx(np.log(4), abs=0.01) and errors[1] == pytest.approx(np.log(2), abs=0.01)


def test_the_kernels_of_a_left_out_chip_are_not_known():
    assert set(calibrate.without_kernels_of(SETUP.scopes, SETUP, accelerator="h200-sxm")) == {"default"}
    assert set(calibrate.without_kernels_of(SETUP.scopes, SETUP, family="hopper")) == {"default"}
    assert calibrate.without_kernels_of(SETUP.scopes, SETUP, accelerator="h100-sxm") == SETUP.scopes


def test_a_chip_rests_on_its_kernels_its_family_or_its_datasheet():
    chips = KNOWN.accelerators | {"mi355x": SimpleNamespace(family="cdna4")}
    bases = calibrate.bases_of([used()], SimpleNamespace(accelerators=chips), SETUP)
    assert bases == {"h200-sxm": "measured", "h100-sxm": "relative", "b200": "datasheet", "mi355x": "datasheet"}


def test_prefill_attention_is_the_better_of_the_suite_and_of_a_framework(tmp_path):
    chip = replace(CHIP, slug="h200-sxm")
    rows = tmp_path / "kernels.csv"
    rows.write_text("accelerator,kernel,value,unit,m\n")
    alone = calibration_files.kernel_values(samples.results(samples.H200), chip, rows)
    assert alone["attention_fraction"] == pytest.approx(samples.TRUE["attention_fraction"], rel=0.02)
    figures = "".join(f"h200-sxm,prefill attention,{rate},TFLOP/s,{m}\n" for rate, m in ((600, 2048), (900, 4096)))
    rows.write_text(rows.read_text() + figures + "h200-sxm,prefill attention,9999,TFLOP/s,512\n")
    both = calibration_files.kernel_values(samples.results(samples.H200), chip, rows)
    assert both["attention_fraction"] == pytest.approx(720e12 / chip.flops_per_s["bf16"])
    assert {k: v for k, v in both.items() if k != "attention_fraction"} == {
        k: v for k, v in alone.items() if k != "attention_fraction"
    }


def test_results_of_the_suite_are_taken_by_the_chip_that_their_file_names(tmp_path):
    def write(name, library, *kinds):
        document = {
            "library": library,
            "started_at": "2026-11-21T10:00:00+00:00",
            "results": [{"kind": k} for k in kinds],
        }
        (tmp_path / name).write_text(json.dumps(document))

    write("h200-sxm--one.json", "torch", "gemm")
    write("h200-sxm--two.json", "torch", "all_reduce")
    write("h200-sxm--jax.json", "jax", "norm")
    assert calibration_files.probed(tmp_path) == {"h200-sxm": [{"kind": "gemm"}, {"kind": "all_reduce"}]}
    assert calibration_files.probed_on(tmp_path) == "2026-11-21"


def test_a_written_scope_loads_and_is_the_same_when_written_again(tmp_path):
    given = (
        "framework:vllm:0.24.0",
        "datasheet",
        "2026-11-21",
        "rows: 3; a note",
        {"kernel_s": 3.14159e-6, "zero": 0.0},
    )
    path = calibration_files.write_scope(tmp_path, *given)
    first = path.read_bytes()
    assert calibration_files.write_scope(tmp_path, *given).read_bytes() == first
    loaded = fixtures.calibration(path)
    assert path.name == "framework-vllm-0.24.0.yaml"
    assert loaded["values"] == {"kernel_s": 3.142e-6, "zero": 0.0}
    assert (loaded["as_of"], loaded["fitted_on"]) == (date(2026, 11, 21), "rows: 3; a note")


def test_the_digest_follows_the_values_alone(tmp_path):
    calibration_files.write_scope(tmp_path, "default", "datasheet", "2026-11-21", "once", {"kernel_s": 1e-6})
    once = calibration_files.digest(tmp_path)
    calibration_files.write_scope(tmp_path, "default", "datasheet", "2026-11-22", "again", {"kernel_s": 1e-6})
    assert calibration_files.digest(tmp_path) == once
    calibration_files.write_scope(tmp_path, "default", "datasheet", "2026-11-22", "again", {"kernel_s": 2e-6})
    assert calibration_files.digest(tmp_path) != once


def test_what_is_said_of_a_scope_names_its_fitted_values():
    facts = {"rows": 9, "groups": 3, "sources": ["a"], "from": "2024", "to": "2026-11", "versions": ["vllm 1"]}
    text = command.source_text("default", ["kernel_s"], facts, SimpleNamespace(about={"default": "engine defaults"}))
    assert text.startswith("engine defaults; kernel_s: fitted on 9 rows in 3 ")


def test_the_free_parameters_are_within_the_budget_that_their_fit_states():
    report = stored.fit_scores()
    parameters = yaml.safe_load((calibration_files.CALIBRATION / "fit" / "parameters.yaml").read_text())["parameters"]
    least_squares.check_budget(len(parameters), report["fitted_on"]["groups"])
    assert [(p["scope"], p["name"]) for p in report["parameters"]] == [(p["scope"], p["name"]) for p in parameters]


def test_the_fitted_values_are_those_of_the_fixtures():
    scopes = calibration_files.read_scopes()
    for p in stored.fit_scores()["parameters"]:
        assert scopes[p["scope"]][p["name"]] == pytest.approx(p["fitted"])


def test_the_published_scores_belong_to_this_engine_and_calibration():
    digest, text = calibration_files.digest(), DOCUMENT.read_text(encoding="utf-8")
    report = stored.fit_scores()
    assert report["engine_version"] == ENGINE_VERSION
    assert stamp(digest) in text and older_fit(report["digest"], digest) in text


def test_held_out_errors_of_an_older_calibration_are_marked():
    assert older_fit("old", "old") == "" and older_fit("old", "") == ""
    assert "calibration old" in older_fit("old", "new") and "shipped calibration, new" in older_fit("old", "new")


# ------------------------------------------------------------------ one engine on one family of chips

SCOPE = "framework:sglang:instinct-mi300"
ENGINE = {"kernel_factor": (0.5, 0.4, 8.0), "matmul_factor": (0.4, 0.1, 1.5)}


def served_rows(known, model="deepseek-ai/DeepSeek-R1"):
    """TPOT of a burst on MI300X by users and prompt length, as predicted with these scopes."""
    runs = [
        row(id=f"{users}-{isl}", accelerator_slug="mi300x", model_id=model, framework="sglang 0.5.12", tp="8",
            n_accelerators="8", concurrency_or_batch=users, isl=isl, source_key="inferencex_fixture")
        for users in ("4", "64") for isl in ("1024", "8192")
    ]  # fmt: skip
    cases = [case_of(r, known) for r in runs]
    return [replace(r, value=1e3 * e.tpot_mean_s) for r, e in zip(runs, estimate_all(cases, known), strict=True)]


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_the_fit_of_a_scope_finds_what_the_rows_were_made_with():
    resources = catalog_resources()
    made = replace(resources, scopes={**resources.scopes, SCOPE: {"kernel_factor": 2.0, "matmul_factor": 0.6}})
    fit = calibrate.fit_scope(served_rows(made), resources, SCOPE, ENGINE, excluded=[])
    assert np.abs(fit.after).max() < np.abs(fit.before).max() / 4  # shrunk to the values of the wider scopes
    assert 1.5 < fit.values["kernel_factor"] < 2.2
    assert fit.uncertain_ratio >= calibrate.LEAST_RATIO  # rows of one model


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("factor", [0.4, 0.95, 1.0, 1.1, 3.0])
def test_the_spread_of_an_engine_makes_its_intervals_hold_the_errors(factor):
    """Measured so many times as slow as predicted: the needed ratio grows with the distance from the interval."""
    resources = catalog_resources()
    rows = [
        replace(each, value=each.value * (factor if model else 1.0), id=f"{model} {each.id}")
        for model in range(2)
        for each in served_rows(resources, ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.2")[model])
    ]
    (found,) = calibrate.spreads(rows, resources, excluded=[])
    assert (found.framework, found.family, found.models) == ("sglang", "instinct-mi300", 2)
    assert found.uncertain_ratio >= calibrate.LEAST_RATIO  # fewer than four models
    (one,) = calibrate.spreads([r for r in rows if r.id.startswith("0")], resources, excluded=[])
    assert (one.uncertain_ratio, one.covered) == (calibrate.ONE_MODEL_RATIO, 1.0)
    assert (found.covered < 1.0) == (factor in (0.4, 3.0))
    if factor in (0.4, 3.0):
        wider = {name: dict(values) for name, values in resources.scopes.items()}
        wider[SCOPE]["uncertain_ratio"] = found.uncertain_ratio * 1.001
        known = replace(resources, scopes=wider)
        scored = scoring.predict(rows, known, lambda cases: estimate_all(cases, known))
        assert all(s.in_interval for s in scored)


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_the_fit_of_a_scope_sees_no_excluded_group():
    resources = catalog_resources()
    rows = served_rows(resources)
    group = ("mi300x", "deepseek-ai/DeepSeek-R1", "inferencex_fixture")
    used, weights = calibrate.scope_rows(rows, resources, SCOPE, [])
    assert len(used) == len(weights) == 4
    assert calibrate.scope_rows(rows, resources, SCOPE, [group])[0] == ()
    assert calibrate.scope_rows(rows, resources, "framework:sglang", [])[0] == ()  # the family's scope is narrower
    with pytest.raises(ValueError, match="no row"):
        calibrate.fit_scope(rows, resources, SCOPE, ENGINE, [group])
