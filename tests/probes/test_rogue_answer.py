"""The answers of the shipped catalog beside machines that measure, one of which lies."""

from typing import Any

import pytest

from advisor import advise, workload
from advisor.inputs.from_catalog import take_snapshot
from catalog.models import Calibration
from probes.fitted import calibrations
from tests.as_json import recommend
from tests.probes.client import FakeAgent
from tests.probes.test_rogue_worker import NAME, figures, honest, sends, slower

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
QUESTION = {
    "name": "chat", "model": "meta-llama/Llama-3.3-70B-Instruct",
    "traffic": {"input_tokens": 2000, "output_tokens": 300, "requests_per_s": 4},
    "constraints": {"accelerators": {"allow": ["h200-sxm"]}}, "variants": "no",
}  # fmt: skip


def test_one_of_seven_machines_that_sends_a_suite_that_was_never_issued_moves_no_answer() -> None:
    """The reported attack: five times slower, under suite version 999, next to six honest machines."""
    assert {r.state for r in honest(6)} == {"accepted"}
    spec = workload.parse(QUESTION)
    rows, values = Calibration.objects.count(), figures()
    before = recommend(spec, take_snapshot(spec))
    assert values["memory_fraction"] == pytest.approx(0.92, rel=0.02)
    rogue = sends(FakeAgent("rogue"), slower(5, suite_version="999"))
    assert rogue.state == "quarantined"
    assert any("suite version '999'" in reason for reason in rogue.reasons)
    assert any("6 other machines" in reason for reason in rogue.reasons)
    after = recommend(spec, take_snapshot(spec))
    assert (Calibration.objects.count(), figures()) == (rows, values)
    assert after["recommendations"] == before["recommendations"] and before["recommendations"]


def test_an_answer_names_the_calibrations_that_it_used(client: Any) -> None:
    honest(2)
    advice = advise.request(workload.parse(QUESTION))
    advise.run(advice.pk)
    advice.refresh_from_db()
    row = Calibration.objects.filter(name=NAME).latest("pk")
    assert advice.result and row.pk in advice.result["calibration_ids"]
    assert {"id": row.pk, "name": NAME, "measured_on": row.as_of.isoformat()} in advice.result["calibrations"]
    assert calibrations.answers_with(row) == [advice.pk]
