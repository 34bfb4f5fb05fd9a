"""llama.cpp and MLX: lone requests against published rates, and that no framework takes the times of another."""

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from advisor.engine.estimate.simulated import Resources, prepare
from advisor.engine.search.limits import distributions
from advisor.engine.step import lanes, prefill_s, step_s
from advisor.engine.terms import Case, Pool, Protocol, overhead
from advisor.inputs.current import catalog_resources

FIXTURES = Path("fixtures")
ROWS = list(csv.DictReader((FIXTURES / "measurements" / "local-engines.csv").read_text().splitlines()))
QWEN = "Qwen/Qwen3-30B-A3B"
SERVING = {
    row["slug"]: row
    for row in map(yaml.safe_load, (path.read_text() for path in sorted(FIXTURES.glob("frameworks/*.yaml"))))
    if row.get("role", "serving") == "serving"
}

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]


@pytest.fixture
def known() -> Resources:
    return catalog_resources()


def lone(known: Resources, row: dict[str, str]) -> float | None:
    """Predicted tokens per second of a lone request; None if the catalog has no such model, chip or format."""
    phase, context, out = row["phase"], float(row["context_tokens"]), float(row["output_tokens"])
    case = Case(
        model_id=row["model"], accelerator_slug=row["accelerator"], chips=1, weights_dtype=row["weights"],
        framework=row["framework"], framework_version="", isl=context, osl=out, phase=phase,
        client=Protocol(kind="single", http=False), pool=Pool(), concurrency=1.0,
    )  # fmt: skip
    prepared = prepare(case, known)
    if isinstance(prepared, str):
        return None
    lane = prepared[0]
    if row["bits_per_weight"]:
        stored = replace(lane.choice.quantization, bits_per_weight=float(row["bits_per_weight"]))
        lane = replace(lane, choice=replace(lane.choice, quantization=stored))
    built = lanes(known.models[row["model"]], [lane])
    seconds = prefill_s(built, 0, context) / context if phase == "prefill" else step_s(built, 0, 1, context + out / 2)
    return 1.0 / float(seconds)


def group_ratios(known: Resources, framework: str, phase: str, held_out: str) -> np.ndarray:
    """Median of predicted over measured rate of each (source, chip, model)."""
    ratios: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in ROWS:
        if (row["framework"], row["phase"], row["held_out"]) == (framework, phase, held_out):
            if (predicted := lone(known, row)) is not None:
                key = (row["source"], row["accelerator"], row["model"])
                ratios[key].append(predicted / float(row["tokens_per_s"]))
    return np.array([np.median(each) for each in ratios.values()])


@pytest.mark.parametrize(("framework", "most"), [("llama.cpp", 0.25), ("mlx", 0.25)])
@pytest.mark.parametrize("held_out", ["0", "1"])
def test_decode_of_lone_requests(known: Resources, framework: str, most: float, held_out: str) -> None:
    ratios = group_ratios(known, framework, "decode", held_out)
    if not len(ratios):
        pytest.skip("no model of these rows is in the catalog")
    assert np.median(np.abs(ratios - 1.0)) <= most, ratios
    assert (np.abs(np.log(ratios)) < np.log(1.6)).mean() >= 0.85, ratios  # before, MoE models were off by 2 to 10 times


@pytest.mark.parametrize("framework", ["llama.cpp", "mlx"])
def test_prompts_of_lone_requests(known: Resources, framework: str) -> None:
    ratios = np.concatenate([group_ratios(known, framework, "prefill", held) for held in "01"])
    assert np.median(np.abs(ratios - 1.0)) <= 0.4, ratios


@pytest.mark.parametrize("framework", ["llama.cpp", "mlx"])
@pytest.mark.parametrize(
    "model", [QWEN, "openai/gpt-oss-20b", "mistralai/Mixtral-8x7B-v0.1", "meta-llama/Llama-3.1-8B"]
)
def test_a_faster_machine_is_faster(known: Resources, framework: str, model: str) -> None:
    """The rate of one request follows memory and cores; no host time of another engine flattens it."""
    macs = ("apple-m4-pro", "apple-m4-max", "apple-m3-ultra")
    weights = "mxfp4" if "gpt-oss" in model else "q4_0" if framework == "llama.cpp" else "mlx-4bit"
    row = {"phase": "decode", "context_tokens": "512", "output_tokens": "128", "weights": weights, "model": model,
           "framework": framework, "bits_per_weight": ""}  # fmt: skip
    rates = [lone(known, row | {"accelerator": mac}) for mac in macs]
    assert rates[0] and rates[1] and rates[2]
    assert rates[0] * 1.2 < rates[1] < rates[2]


def scored() -> set[str]:
    """Frameworks with rows in the scorecard or among local engines."""
    found = {row["framework"] for row in ROWS}
    for path in FIXTURES.glob("fidelity/*.csv"):
        with path.open(newline="") as lines:
            found |= {row["framework"] for row in csv.DictReader(lines) if row.get("framework")}
    return found


@pytest.mark.parametrize("slug", sorted(SERVING))
def test_each_framework_states_its_launch_times(slug: str) -> None:
    """Its own, from rows of its own, or an estimate that says so and widens the intervals."""
    times = SERVING[slug]["host_times"]
    assert {"eager_ms_per_layer", "eager_ms_per_expert_layer", "uncertain_ratio"} <= set(times)
    assert "ager layers" in times["source"]
    if slug not in scored():
        assert times["uncertain_ratio"] > 1.0 and "nobody measured" in times["source"]


def test_no_framework_takes_the_launch_times_of_another(known: Resources) -> None:
    assert not {"eager_s_per_layer", "eager_s_per_expert_layer"} & set(known.scopes["framework"])
    with pytest.raises(ValueError, match="eager_s_per_layer"):
        overhead(known.scopes, "an engine without values", "1.0")


def test_an_estimate_of_a_framework_has_wider_intervals(known: Resources) -> None:
    row = {"phase": "decode", "context_tokens": "512", "output_tokens": "128", "weights": "q4_k_m", "model": QWEN,
           "framework": "llama.cpp", "bits_per_weight": ""}  # fmt: skip
    assert lone(known, row | {"accelerator": "xeon-6980p"})
    unsure, sure = (overhead(known.scopes, "llama.cpp", "", kind=kind) for kind in ("cpu", "gpu"))
    assert unsure.uncertain_ratio > sure.uncertain_ratio == 1.0
    low, high = distributions(known.scopes, "datasheet")["tpot"].ends
    wide = distributions(known.scopes, "datasheet")["tpot"].widened(unsure.uncertain_ratio).ends
    assert wide == pytest.approx((low / unsure.uncertain_ratio, high * unsure.uncertain_ratio), rel=0.05)


def test_macos_keeps_a_quarter_of_the_memory(known: Resources) -> None:
    macs = [a for a in known.accelerators.values() if a.kind == "apple"]
    assert len(macs) >= 10
    for mac in macs:
        file = yaml.safe_load((FIXTURES / "accelerators" / f"{mac.slug}.yaml").read_text())
        assert mac.memory_bytes == pytest.approx(0.75 * file["memory"]["gib"] * 2**30)
