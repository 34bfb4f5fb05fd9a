"""Saved answers that rest on older data: named with what is newer, per organization, and compared on request."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import refresh
from advisor.celery import app
from advisor.models import Advice
from catalog.models import Accelerator, Calibration, CatalogLoad, Framework, Organisation, Price, PriceRefresh
from tests import sample_advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def newer() -> list[str]:
    (row,) = refresh.resting()
    return row.newer


@pytest.fixture
def saved() -> Advice:
    load = CatalogLoad.objects.order_by("-pk").first()
    assert load is not None
    Framework.objects.filter(slug="vllm").exclude(version="0.24.0").delete()
    answer = sample_advice.result()
    answer["recommendations"][0]["term"] = "on_demand"
    return sample_advice.advice(answer=answer, catalog_version=load.version)


def price(saved: Advice, day: str, usd: str, **changes: Any) -> None:
    option = saved.answer["recommendations"][0]  # type: ignore[index]
    chip = Accelerator.objects.get(slug=option["accelerator"])
    same = {name: option[name] for name in ("provider", "instance", "region")} | changes
    Price.objects.create(**same, term=option["term"], accelerator=chip, accelerators=8, usd_per_hour=usd, kind="vm",
                         as_of=day, source="s", smallest_unit_accelerators=8)  # fmt: skip


def test_an_answer_on_the_newest_data_rests_on_nothing_older(saved: Advice) -> None:
    assert newer() == []


def test_a_price_that_changed_since_is_named_with_both_and_one_that_was_confirmed_is_not(saved: Advice) -> None:
    day = saved.answer["recommendations"][0]["price_as_of"]  # type: ignore[index]
    price(saved, day, "24")
    price(saved, "2030-01-01", "24")
    assert newer() == []
    price(saved, "2030-01-02", "20", region="elsewhere")
    assert newer() == []
    price(saved, "2030-01-03", "20")
    (line,) = newer()
    assert "$20" in line and "2030-01-03 instead of $24" in line


def test_an_older_version_that_was_read_later_is_not_newer(saved: Advice) -> None:
    row = Framework.objects.get(slug="vllm")
    row.pk, row.version, row.as_of = None, "0.9.0", "2030-01-01"
    row.save()
    assert newer() == []


def test_newer_frameworks_calibrations_and_catalogs_are_named(saved: Advice) -> None:
    row = Framework.objects.get(slug="vllm")
    row.pk, row.version, row.as_of = None, "9.9.9", "2030-01-01"
    row.save()
    old = Calibration.objects.exclude(name="").order_by("pk").first()
    assert old is not None
    Advice.objects.update(calibration_ids=[old.pk])
    Calibration.objects.create(name=old.name, values={}, basis="measured", engine_version="1", as_of="2030-01-01")
    CatalogLoad.objects.create(version="f" * 64)
    assert [line.split(":")[0] for line in newer()[:2]] == ["the catalog", "calibrations"]
    assert any("9.9.9 instead of 0.24" in line for line in newer())


def test_newer_own_calibrations_are_named_and_those_of_others_are_not(saved: Advice) -> None:
    def made(owner: Organisation) -> Calibration:
        return Calibration.objects.create(organisation=owner, name="accelerator:x", values={}, basis="measured",
                                          engine_version="1", as_of="2030-01-01")  # fmt: skip

    Advice.objects.update(calibration_ids=[made(saved.organisation).pk])
    made(Organisation.objects.create(slug="theirs", name="Theirs"))
    assert newer() == []
    made(saved.organisation)
    assert newer() == ["calibrations: accelerator:x"]


def test_the_page_shows_the_answers_of_the_own_organization_and_links_them(saved: Advice, client: Client) -> None:
    CatalogLoad.objects.create(version="f" * 64)
    page = client.get("/advice/freshness").content.decode()
    assert f"/advice/{saved.pk}" in page and "the catalog: version ffffffffffff" in page
    Advice.objects.update(organisation=Organisation.objects.create(name="Other", slug="other"))
    assert str(saved.pk) not in client.get("/advice/freshness").content.decode()


def test_the_button_starts_one_comparison_and_its_changes_are_shown_to_their_organization(
    saved: Advice, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args: started.append((name, *args)))
    assert client.post("/advice/freshness").status_code == 302
    assert [sent[:2] for sent in started] == [("answers.compare", saved.organisation_id)]
    change = {
        "advice": str(saved.pk), "organisation": saved.organisation_id, "name": "chat", "what": "winner", "before": "a",
        "after": "b", "usd_per_month_before": 2.0, "usd_per_month_after": 1.0,
    }  # fmt: skip
    other = Organisation.objects.create(name="Other", slug="other")
    row = PriceRefresh.objects.create(
        made_by="x", state="done", lease_until=saved.created_at, finished_at=saved.created_at,
        report={"sources": [], "answers_checked": 1, "answers_changed": [change]},
    )  # fmt: skip
    assert "b ($1.00 a month) instead of a" in client.get("/advice/freshness").content.decode()
    assert client.get("/api/v1/freshness").json()["price_refresh"]["answers_changed"] == ["chat"]
    row.report["answers_changed"][0]["organisation"] = other.pk
    row.save()
    assert client.get("/api/v1/freshness").json()["price_refresh"]["answers_changed"] == []
    PriceRefresh.objects.update(finished_at=None, state="running", lease_until="2100-01-01T00:00Z")
    client.post("/advice/freshness")
    assert len(started) == 1


def test_a_comparison_uses_the_data_that_the_answer_rests_on(
    saved: Advice, engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Advice.objects.update(snapshot=engine.snapshot(saved.workload.spec, None).stored() | {"site": "elsewhere"})
    seen: list[str] = []
    plain = engine.recommend

    def recommend(spec: Any, snapshot: Any, *more: Any) -> Any:
        seen.append(snapshot.site)
        return plain(spec, snapshot, *more)

    engine.recommend = recommend
    call_command("status", "--compare")
    assert seen[0] == "elsewhere" and len(seen) == 2
    assert "saved answers: 1 checked" in capsys.readouterr().out
