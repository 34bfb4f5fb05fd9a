"""What machines changed is shown with before and after, taken back by one word, and marked in the answers."""

from datetime import date
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from advisor.inputs.from_catalog import calibrations as assemble_calibrations
from advisor.models import Advice, Option
from catalog.loading.load import append_calibrations
from catalog.models import Accelerator, Calibration
from probes.fitted import calibrations, fitting
from probes.models import Result
from probes.received import results
from tests import links, sample_advice
from tests.pages import every_section
from tests.probes import samples
from tests.probes.test_rogue_worker import NAME, figures, slower

pytestmark = pytest.mark.django_db
FILE = {
    "name": NAME, "values": {"memory_fraction": 0.8, "sample_bytes_per_logit": 25}, "basis": "relative",
    "fitted_on": "a file", "engine_version": "1", "as_of": date(2026, 1, 1),
}  # fmt: skip


def calibrated(factor: float = 1.0, minutes: float = 0, name: str = "NVIDIA H200") -> Calibration:
    """By a result that a person approved; each device name is a machine."""
    document = slower(factor, started_at=samples.begun(minutes), device={"uuid_hash": name})
    result = results.import_file(samples.body(document), approve=True)
    row = fitting.run(result.pk)
    assert row
    return row


def memory() -> float:
    return figures()["memory_fraction"]


def test_a_calibration_says_what_it_changed_and_on_what_it_rests(h200: Accelerator) -> None:
    append_calibrations([FILE])
    row = calibrated()
    change = next(c for c in row.changes if c["figure"] == "memory_fraction")
    assert (change["before"], change["after"]) == (0.8, row.values["memory_fraction"])
    assert row.results == [Result.objects.get().pk] and "sample_bytes_per_logit" not in str(row.changes)


def test_an_undo_restores_the_former_figures_and_appends(h200: Accelerator) -> None:
    append_calibrations([FILE])
    row = calibrated()
    made = calibrations.undo(row, "ada")
    assert made.values == FILE["values"] and made.basis == "relative" and made.measured == []
    assert Calibration.objects.count() == 3 and made.undoes == row and made.made_by == "ada"
    result = Result.objects.get()
    assert result.excluded_by == "ada" and "excluded on" in results.standing(result)
    assert append_calibrations([FILE]).created == 0
    newer = FILE | {"values": {"memory_fraction": 0.7}, "fitted_on": "a newer file"}
    append_calibrations([newer])
    assert figures() == {"memory_fraction": 0.7}  # nothing that was undone stays above the file


def test_an_undo_of_the_only_calibration_leaves_none(h200: Accelerator) -> None:
    made = calibrations.undo(calibrated(), "ada")
    assert made.values == {} and NAME not in assemble_calibrations()


def test_what_was_undone_is_not_in_later_pools_until_a_person_uses_it_again(h200: Accelerator) -> None:
    calibrated()
    before = memory()
    bad = calibrated(1.25, minutes=1, name="bad")
    assert memory() < before
    calibrations.undo(bad, "ada")
    assert memory() == before
    assert fitting.run(Result.objects.get(calibration=bad).pk) is None
    calibrated(1.02, minutes=2, name="third")
    assert memory() == pytest.approx(before, rel=0.03)
    again = Result.objects.get(excluded_by="ada")
    assert results.release(again, "bob") and fitting.run(again.pk)
    again.refresh_from_db()
    assert again.excluded_at is None


def test_an_undo_keeps_what_later_machines_measured_without_the_undone_one(h200: Accelerator) -> None:
    calibrated()
    bad = calibrated(1.3, minutes=1, name="bad")
    calibrated(1.01, minutes=2, name="third")
    mixed = memory()
    calibrations.undo(bad, "ada")
    assert memory() == pytest.approx(0.92, rel=0.02) and memory() > mixed * 0.999
    assert set(figures()) >= {"memory_fraction", "kernel_s"}


def test_undoing_two_in_any_order_leaves_what_was_before_both(h200: Accelerator) -> None:
    for order in ((0, 1), (1, 0)):
        Result.objects.all().delete()
        Calibration.objects.filter(undoes__isnull=False).delete()
        Calibration.objects.all().delete()
        append_calibrations([FILE])
        rows = [calibrated(1.0, 0, "a"), calibrated(1.25, 1, "b")]
        for n in order:
            calibrations.undo(rows[n], "ada")
        assert figures() == FILE["values"], order


def test_an_undo_is_refused_twice_of_an_undo_and_of_a_file(h200: Accelerator) -> None:
    append_calibrations([FILE])
    row = calibrated()
    made = calibrations.undo(row, "ada")
    for other, words in ((row, "Already undone"), (made, "This is the undo")):
        with pytest.raises(calibrations.CannotUndo, match=words):
            calibrations.undo(Calibration.objects.get(pk=other.pk), "ada")
    file = Calibration.objects.get(fitted_on="a file")
    with pytest.raises(calibrations.CannotUndo, match="Change the file"):
        calibrations.undo(file, "ada")


def test_the_command_lists_shows_and_undoes(h200: Accelerator, capsys: Any) -> None:
    append_calibrations([FILE])
    row = calibrated()
    call_command("calibrations")
    assert NAME in capsys.readouterr().out
    call_command("calibrations", "show", str(row.pk))
    assert "memory_fraction" in (shown := capsys.readouterr().out) and "0.800 -> 0.918" in shown, shown
    call_command("calibrations", "undo", str(row.pk))
    assert f"calibration {row.pk} was undone by" in capsys.readouterr().out and memory() == 0.8
    with pytest.raises(CommandError, match="Already undone"):
        call_command("calibrations", "undo", str(row.pk))
    with pytest.raises(CommandError, match="no calibration 999 from measurements"):
        call_command("calibrations", "undo", "999")


def test_the_page_shows_before_and_after_and_undoes_with_one_click(h200: Accelerator, client: Any) -> None:
    append_calibrations([FILE])
    row = calibrated()
    path = f"/workers/calibrations/{row.pk}"
    assert f'href="{path}"' in client.get("/workers/calibrations").content.decode()
    page = client.get(path).content.decode()
    assert "memory_fraction" in page and "0.8" in page and "Undo: restore" in page
    answer = client.post(f"{path}/undo", follow=True)
    assert answer.status_code == 200 and "previous figures are restored" in answer.content.decode() and memory() == 0.8
    assert "Undone on" in client.get(path).content.decode()
    assert "Already undone" in client.post(f"{path}/undo", follow=True).content.decode()
    excluded = client.get(f"/workers/results/{Result.objects.get().pk}").content.decode()
    assert "Excluded on" in excluded and "Use it again" in excluded


def test_the_api_shows_and_undoes(h200: Accelerator, client: Any) -> None:
    row = calibrated()
    assert client.get(f"/api/v1/calibrations?name={NAME}").json()["count"] == 1
    shown = client.get(f"/api/v1/calibrations/{row.pk}").json()
    assert shown["changes"][0].keys() == {"figure", "before", "after"} and shown["used_by"] == []
    answer = client.post(f"/api/v1/calibrations/{row.pk}/undo")
    assert answer.status_code == 201 and answer.json()["undoes"] == row.pk
    assert client.get(f"/api/v1/calibrations/{row.pk}").json()["undone_by"] == answer.json()["id"]
    assert client.post(f"/api/v1/calibrations/{row.pk}/undo").status_code == 409


def test_with_users_only_staff_undoes(h200: Accelerator, client: Any) -> None:
    row = calibrated()
    User.objects.create_user("ada", password="lovelace")
    assert client.post(f"/workers/calibrations/{row.pk}/undo")["Location"].startswith("/login")
    assert client.post(f"/api/v1/calibrations/{row.pk}/undo").status_code in (401, 403)
    assert Calibration.objects.count() == 1


# --- the answers ------------------------------------------------------------------------------------------------


def answer_with(row: Calibration) -> Advice:
    """A finished answer that used this calibration; it ranks no H200, as after a figure that made it look slow."""
    advice = sample_advice.advice()
    Option.objects.filter(advice=advice).update(accelerator_slug="l4")
    used = [{"id": row.pk, "name": row.name, "measured_on": row.as_of.isoformat()}]
    result = {**(advice.result or {}), "calibrations": used, "calibration_ids": [row.pk]}
    Advice.objects.filter(pk=advice.pk).update(result=result, calibration_ids=[row.pk])
    advice.refresh_from_db()
    return advice


def test_answers_that_used_what_was_undone_say_so_and_are_asked_again(h200: Accelerator, client: Any) -> None:
    row = calibrated()
    advice = answer_with(row)
    link = f"/s/{links.shared(client, advice)}"
    words = f"used calibration {row.pk} of"
    places = [f"/advice/{advice.pk}", f"/advice/{advice.pk}/options/1", f"/advice/{advice.pk}/advice.md", link]
    for place in places:
        assert words not in client.get(place).content.decode(), place
    assert [a.pk for a in calibrations.affected(row, advice.organisation).used] == [advice.pk]
    calibrations.undo(row, "ada")
    for place in places:
        assert words in client.get(place).content.decode() and "undone on" in client.get(place).content.decode(), place
    for address in (f"/api/v1/advice/{advice.pk}", f"/advice/{advice.pk}/result.json"):
        (told,) = client.get(address).json()["calibrations"]
        assert (told["id"], told["undone_by"]) == (row.pk, "ada") and told["undone_on"], address
    assert advice.successors.get().state == "queued"


def test_an_answer_that_used_another_calibration_is_not_marked(h200: Accelerator, client: Any) -> None:
    first, second = calibrated(), calibrated(1.05, 1, "b")
    advice = answer_with(first)
    calibrations.undo(second, "ada")
    assert "undone on" not in every_section(client, f"/advice/{advice.pk}")
    assert not advice.successors.exists()
