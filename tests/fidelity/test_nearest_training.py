"""The measured training runs nearest to a recommended one: what is near, which figures are shown, and their units."""

from dataclasses import replace

import pytest

from advisor.fidelity import nearest_rows
from advisor.fidelity.scores import scorecard
from advisor.fidelity.training import nearest as nearest_training
from advisor.fidelity.training.nearest import Situation, distance
from catalog.models import Scorecard, ScoredRow

HERE = Situation(
    accelerator="h100-sxm", family="hopper", model="meta-llama/Llama-3.1-8B", parameters=8e9, active_parameters=8e9,
    framework="megatron", method="full", precision="bf16", chips=8, sequence_tokens=8192, batch_per_chip=65536,
)  # fmt: skip
CHANGES = (
    {"method": "lora"}, {"precision": "fp8"}, {"chips": 64}, {"sequence_tokens": 2048}, {"batch_per_chip": 8192},
    {"framework": "hf"}, {"accelerator": "h200-sxm"}, {"accelerator": "b200", "family": "blackwell"},
    {"model": "other", "parameters": 70e9, "active_parameters": 70e9},
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_each_difference_counts_the_same_in_both_directions(change):
    there = replace(HERE, **change)
    assert distance(HERE, there) == distance(there, HERE) > distance(HERE, HERE) == 0


def test_another_family_of_chips_is_not_similar_but_another_chip_of_the_family_is():
    assert distance(HERE, replace(HERE, accelerator="h200-sxm")) <= nearest_rows.NEAR
    assert distance(HERE, replace(HERE, accelerator="b200", family="blackwell")) > nearest_rows.NEAR


def test_qlora_is_nearer_to_lora_than_to_full_training():
    qlora, lora = replace(HERE, method="qlora"), replace(HERE, method="lora")
    assert distance(qlora, lora) < distance(qlora, HERE)


def stored(key, metric, measured, predicted, source="h200x4_train", **changes):
    run = {
        "accelerator": "h200-sxm", "family": "hopper", "chips": 4, "model": "meta-llama/Llama-3.1-8B",
        "framework": "torch, transformers", "weights_dtype": "bf16", "mode": "full", "layout": "dp4 ZeRO 3",
        "isl": 4096, "osl": 0, "concurrency": 8, "client": "training", "client_known": True, "phase": "training",
    }  # fmt: skip
    return ScoredRow(
        key=key, source_key=source, metric=metric, measured=measured, predicted=predicted,
        bias_fraction=predicted / measured - 1.0 if measured else 0.25, **run | changes,
    )  # fmt: skip


@pytest.fixture
def rows(db):
    ScoredRow.objects.bulk_create([
        stored("a:rate", "tokens_per_s_per_accelerator", 9000.0, 9900.0),
        stored("a:step", "step_time_s", 3.6, 3.3),
        stored("a:peak", "peak_memory_bytes", 50 * 2.0**30, 51 * 2.0**30),
        stored("b:rate", "tokens_per_s", 9000.0, 9000.0, concurrency=64),
        stored("c:fits", "fits_in_memory", 1.0, 1.0, concurrency=128),
        stored("d:peak", "peak_memory_gb", 40.0, 40.0, "torchtitan", concurrency=512),
        stored("e:kept", "samples_per_s", None, None, "neuron_train", concurrency=2048),
        stored("f:odd", "step_time_s", 1.0, 9.0, circumstance="disputed"),
    ])  # fmt: skip
    Scorecard.objects.create(digest="nearest-training", engine_version="0", calibration="c", as_of="2026-11-25")
    return scorecard.card()


def test_a_run_shows_its_speed_and_its_peak_and_no_disputed_row(rows):
    here = replace(HERE, accelerator="h200-sxm", framework="hf", chips=4, sequence_tokens=4096, batch_per_chip=8192)
    near = nearest_training.nearest(here, nearest_training.runs_of("nearest-training"))
    shown = [nearest_training.measured_run(far, line, rows) for far, run in near
             for line in nearest_training.headlines(run.lines)]  # fmt: skip
    assert [each.id for each in shown] == ["a:rate", "a:peak", "b:rate", "d:peak", "e:kept"]
    assert shown[0].distance == 0 and shown[0].error_fraction == pytest.approx(0.1)
    assert (shown[1].metric, shown[1].measured, shown[1].predicted) == ("peak_allocated_gib", 50, 51)
    assert (shown[3].metric, shown[3].measured) == ("peak_reserved_gib", 40)  # torchtitan prints GiB of reserved memory
    assert shown[4].measured is None and shown[4].error_fraction == 0.25


def test_training_rows_stay_out_of_the_scores_of_serving_but_are_found_by_their_ids(rows):
    assert rows.lines == ()
    assert [line.row.key for line in scorecard.filtered(rows.listed(["a:rate"]), {}, ["a:rate"])] == ["a:rate"]


def test_without_training_rows_nothing_is_shown():
    assert nearest_training.shown([]) == {"runs": [], "none_near": False, "url": ""}
