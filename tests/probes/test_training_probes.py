"""Training steps from a file: read strictly, stored, fitted to the chip, and compared with their prediction."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from advisor.engine.terms import Efficiency, efficiency
from advisor.inputs import calibrations, catalog_chip
from catalog.management.errors import BadInput
from catalog.models import Accelerator, Calibration
from probes.fitted import fitting
from probes.models import Result
from probes.received import intake, results
from tests.fidelity.test_training_probes import overlaps
from tests.fidelity.test_training_probes import steps as known_steps
from tests.probes import samples

pytestmark = pytest.mark.django_db
CALIBRATION = Path(__file__).resolve().parents[2] / "fixtures" / "calibration"


def steps(rates: Efficiency, factors: tuple[float, ...]) -> list[dict[str, Any]]:
    """Steps on the catalog's H200."""
    return known_steps(rates, factors, chip=catalog_chip(Accelerator.objects.get()))


@pytest.fixture
def rates(h200: Accelerator) -> Efficiency:
    """The efficiency of the chip in a catalog with the calibrations of all chips and frameworks only."""
    for name in ("default", "framework", "training"):
        Calibration.objects.create(**yaml.safe_load((CALIBRATION / f"{name}.yaml").read_text()))
    return efficiency(calibrations(), h200.slug, catalog_chip(h200).family, "gpu")


def document(*rows: dict[str, Any], **changes: Any) -> bytes:
    return samples.body(samples.document(results=[samples.known(), *rows], **changes))


def test_training_rows_change_the_figures_of_the_chip(rates: Efficiency) -> None:
    result = results.import_file(document(*steps(rates, (1.2, 1.2, 1.2)), *overlaps(0.3)), approve=True)
    row = fitting.run(result.pk)
    assert row and row.values == {"training_factor": 1.2}
    assert "3 training steps of a few layers" in Result.objects.get(pk=result.pk).fit["training_factor"]["from"]
    after = efficiency(calibrations(), "h200-sxm", "hopper", "gpu")
    assert (after.training_factor, after.overlap_slowdown_fraction) == (1.2, 0.18)
    assert after.basis == rates.basis == "datasheet"  # steps say nothing about kernels, whose ranges stay wide
    assert (rates.training_factor, rates.overlap_slowdown_fraction) == (1.0, 0.18)


def test_steps_are_compared_with_the_kernel_rates_of_the_same_machine(rates: Efficiency) -> None:
    """Slower products explain slower steps: they are no factor on top."""
    slow = samples.document()["results"]
    first = fitting.run(results.import_file(samples.body(samples.document()), approve=True).pk)
    assert first
    own = efficiency(calibrations(), "h200-sxm", "hopper", "gpu")
    assert own.matmul_16_fraction != rates.matmul_16_fraction
    result = results.import_file(samples.body(samples.document(results=[*slow, *steps(own, (1.1, 1.1, 1.1))])), True)
    row = fitting.run(result.pk)
    assert row and row.values["training_factor"] == pytest.approx(1.1, rel=1e-3) and row.basis == "measured"


def test_a_result_that_changes_nothing_says_why(rates: Efficiency) -> None:
    quick = results.import_file(document(*steps(rates, (1.2, 1.2, 1.2))[:1], samples.memory()[0]), approve=True)
    assert fitting.run(quick.pk) is None
    quick.refresh_from_db()
    assert "from 1 usable steps" in quick.remarks[0] and quick.remarks[1].startswith("changes no figure: it determines")


def test_peak_memory_and_parts_are_stored(rates: Efficiency) -> None:
    row = steps(rates, (1.0, 1.0, 1.0))[0] | {"peak_bytes": 3_750_109_184}
    result = results.import_file(document(row, overlaps(0.3)[0]), approve=True)
    step, overlap = result.measurements.exclude(kind="known_answer").order_by("pk")
    assert step.peak_bytes == 3_750_109_184 and step.parts_s is None
    assert overlap.parts_s["communication"] == 0.010 and overlap.peak_bytes is None


def test_steps_of_agents_before_the_field_are_accepted(rates: Efficiency) -> None:
    row = steps(rates, (1.0, 1.0, 1.0))[0] | {"note": "peak allocated 3750109184 bytes"}
    result = results.import_file(document(row, agent_version="1.1.0"), approve=True)
    assert result.state == "accepted" and result.measurements.get(kind="train_step").peak_bytes is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parts_s": None}, "belongs to rows of train_overlap"),
        ({"parts_s": {"compute": 1.0, "communication": 1.0}}, "compute_beside"),
        ({"parts_s": {"compute": 0.02, "communication": 0.01, "compute_beside": 99.0}}, "must not exceed"),
        ({"peak_bytes": -1}, "peak_bytes"),
    ],
)
def test_parts_that_contradict_the_row_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(intake.IntakeError, match=said):
        intake.read(document(overlaps(0.3)[0] | change), 10**7)


def test_the_command_prints_predicted_against_measured(
    rates: Efficiency, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    peak = [row | {"peak_bytes": 8_474_936_320} for row in steps(rates, (1.25, 1.25, 1.25))]
    file.write_bytes(document(*peak, *overlaps(0.3)))
    call_command("compare_training", str(file))
    lines = capsys.readouterr().out.splitlines()
    (step,) = (line for line in lines if "tokens=4096 recompute=none" in line and " step " in line)
    assert "-20.0 %" in step
    assert sum("hidden" in line and " pp" in line for line in lines) == 3
    assert any("training_factor 1.25" in line for line in lines)
    assert not Result.objects.exists()


def test_the_command_says_what_to_measure_if_there_are_no_steps(rates: Efficiency, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps(json.loads(document(samples.memory()[0]))))
    with pytest.raises(BadInput, match="--kinds known_answer,train_step,train_overlap"):
        call_command("compare_training", str(file))
