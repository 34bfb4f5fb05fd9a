"""Results of an organization's machines calibrate its answers, and those of nobody else unless it shares them."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import inputs
from advisor.models import Advice, Option
from catalog.models import Accelerator, AuditEvent, Calibration, Organisation, default_organisation
from probes.fitted import calibrations, fitting
from probes.models import Result
from probes.received import results
from tests import sample_advice
from tests.people import member, organisation
from tests.probes import samples
from tests.probes.test_rogue_worker import NAME, slower

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


def calibrated(owner: Organisation, factor: float = 1.0) -> Calibration:
    """By a result that a person approved."""
    result = results.import_file(samples.body(slower(factor)), approve=True)
    Result.objects.filter(pk=result.pk).update(organisation=owner)
    row = fitting.run(result.pk)
    assert row
    return row


def memory(owner: Organisation | None) -> Any:
    return inputs.calibrations(owner).get(NAME, {}).get("memory_fraction")


def test_they_change_answers_of_their_organization_alone(h200: Accelerator, acme: Organisation, woken: Any) -> None:
    before = memory(None)
    ours, theirs = sample_advice.advice(), sample_advice.advice()
    Option.objects.update(accelerator_slug=h200.slug)
    Advice.objects.filter(pk=ours.pk).update(organisation=acme)
    row = calibrated(acme, 1.3)
    assert row.organisation == acme and set(row.values) == set(row.measured)
    assert memory(acme) == row.values["memory_fraction"] != before
    assert memory(None) == memory(default_organisation()) == before
    assert Advice.objects.filter(supersedes=ours).count() == 1 and not Advice.objects.filter(supersedes=theirs).exists()
    assert results.standing(Result.objects.get()) == ""


def test_only_its_members_see_and_undo_them(h200: Accelerator, acme: Organisation) -> None:
    before, row = memory(acme), calibrated(acme)
    keeper, viewer, operator = Client(), Client(), Client()
    keeper.force_login(member("eve", "admin"))
    viewer.force_login(member("vera", "viewer", acme))
    operator.force_login(member("o", "operator", acme))
    page, call = f"/workers/calibrations/{row.pk}", f"/api/v1/calibrations/{row.pk}"
    assert [client.get(page).status_code for client in (keeper, viewer, operator)] == [404, 200, 200]
    assert [client.get(call).status_code for client in (keeper, viewer, operator)] == [404, 200, 200]
    counts = [client.get("/api/v1/calibrations").json()["count"] for client in (keeper, viewer, Client())]
    assert counts == [0, 1, 0]
    assert keeper.post(f"{call}/undo").status_code == 404 and viewer.post(f"{call}/undo").status_code == 403
    assert viewer.post(f"{page}/undo").status_code == 403 and keeper.post(f"{page}/undo").status_code == 404
    assert operator.post(f"{call}/undo").status_code == 201
    assert memory(acme) == before and AuditEvent.objects.get(action="calibration").organisation == acme


def test_a_command_shares_one_with_all(h200: Accelerator, acme: Organisation, capsys: Any) -> None:
    row = calibrated(acme)
    call_command("calibrations", "share", str(row.pk))
    assert memory(None) == row.values["memory_fraction"]
    shared = Calibration.objects.filter(name=NAME).latest("pk")
    assert shared.organisation is None and shared.results == row.results
    with pytest.raises(calibrations.CannotUndo, match="of one organization"):
        calibrations.share(shared, "ada")
