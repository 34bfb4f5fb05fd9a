"""An advice at the prices of a past day: only rows that were known on it, so last month's answer comes again."""

import io
import json
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from advisor import advise, report, workload
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.models import Advice
from advisor.result import Answer
from advisor.web import forms
from catalog.models import Accelerator, CatalogLoad, Price
from tests.as_json import recommend
from tests.clocks import TODAY
from tests.pages import every_section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
CHANGES = (
    "constraints.accelerators.allow=[h200-sxm]",
    "constraints.frameworks.allow=[vllm]",
    "constraints.formats.allow=[fp8]",
    "variants=no",
    "constraints.providers.allow=[somecloud]",
    "constraints.acquisition=[rent]",
    "tco.operator-usd-per-year=0",  # the price alone
)


def ago(days: int) -> Any:
    return datetime.combine(TODAY, time(12), tzinfo=UTC) - timedelta(days)


def offered(usd: float, days: int, recorded_days: int | None = None) -> None:
    Price.objects.create(
        provider="somecloud", instance="big", region="any", accelerator=Accelerator.objects.get(slug="h200-sxm"),
        accelerators=8, term="on_demand", kind="vm", usd_per_hour=usd, as_of=TODAY - timedelta(days), source="list",
        recorded_at=ago(days if recorded_days is None else recorded_days),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def since_last_quarter() -> None:
    """A catalog in use for ninety days; the price rose twenty days ago."""
    CatalogLoad.objects.update(loaded_at=ago(90))
    Price.objects.update(recorded_at=ago(91))
    offered(10, days=60)
    offered(16, days=20)


def asked(*changes: str) -> dict[str, Any]:
    raw = workload.load(FILE.read_bytes())
    for change in (*CHANGES, *changes):
        raw = workload.set_path(raw, *change.split("=", 1))
    spec = workload.parse(raw)
    check_catalog(spec)
    return spec


def day(days: int) -> str:
    return (TODAY - timedelta(days)).isoformat()


def answered(*changes: str) -> dict[str, Any]:
    spec = asked(*changes)
    return recommend(spec, take_snapshot(spec))


def hourly(*changes: str) -> float:
    best = answered(*changes)["recommendations"][0]
    return float(best["usd_per_hour"] / best["instances"])


def test_the_price_of_a_day_is_the_one_known_on_it() -> None:
    assert (hourly(), hourly(f"prices_as_of={day(30)}"), hourly(f"prices_as_of={day(20)}")) == pytest.approx(
        (16, 10, 16)
    )


def test_a_row_that_was_recorded_later_was_not_known_then() -> None:
    offered(5, days=40, recorded_days=1)
    assert hourly(f"prices_as_of={day(30)}") == pytest.approx(10)


def test_before_the_catalog_was_there_the_dates_of_the_rows_decide() -> None:
    Price.objects.filter(provider="somecloud").update(recorded_at=timezone.now())
    assert not answered(f"prices_as_of={day(30)}")["recommendations"]
    CatalogLoad.objects.update(loaded_at=timezone.now())
    assert hourly(f"prices_as_of={day(30)}") == pytest.approx(10)


def test_what_expired_by_then_is_judged_on_that_day() -> None:
    offered(1, days=400)
    Price.objects.filter(provider="somecloud").exclude(usd_per_hour=1).delete()
    Price.objects.filter(provider="somecloud").update(origin="reseller")  # an official rent does not expire
    CatalogLoad.objects.update(loaded_at=ago(500))
    assert answered(f"prices_as_of={day(100)}", "constraints.exclude=[]")["recommendations"]
    assert not answered()["recommendations"]


def test_an_advice_of_last_month_comes_again_at_its_prices(client: Client) -> None:
    spec = asked()
    then = take_snapshot({**spec, "prices_as_of": day(30)})
    first = recommend(spec, then)
    advice = advise.request(spec)
    Advice.objects.filter(pk=advice.pk).update(
        state="done", snapshot=then.stored(), result=first, created_at=ago(30), finished_at=ago(30)
    )
    page = every_section(client, f"/advice/{advice.pk}")
    assert "Re-run with the original prices" in page
    where = client.post(f"/advice/{advice.pk}/rescore", {"prices": "then"})["Location"]
    again = Advice.objects.get(pk=where.rsplit("/", 1)[1])
    assert again.workload.spec["prices_as_of"] == day(30) and again.supersedes_id == advice.pk
    assemble_again = recommend(again.workload.spec, take_snapshot(again.workload.spec))
    keep = ("usd_per_hour", "label", "price_as_of", "usd_per_month")
    assert [assemble_again["recommendations"][0][key] for key in keep] == [
        first["recommendations"][0][key] for key in keep
    ]
    today = advise.rescore(advice)
    assert today.workload.spec["prices_as_of"] is None


def test_the_command_takes_the_day(capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--set={change}" for change in CHANGES]
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), *options, "--format", "json", "--prices-as-of", day(30), stdout=out)
    assert ended.value.code == 0
    result = json.loads(out.getvalue())
    assert result["recommendations"][0]["usd_per_hour"] == pytest.approx(10 * result["recommendations"][0]["instances"])
    assert f"as known on {day(30)}" in report.text.head(Answer.read(result))


@pytest.mark.parametrize("given", ["tomorrow", "2026-13-01", "2999-01-01"])
def test_a_day_that_is_none_or_ahead_is_refused_at_its_field(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--prices-as-of", given)
    assert ended.value.code == 2
    with pytest.raises(workload.WorkloadError) as refused:
        workload.parse({"prices_as_of": given, "model": "m", "traffic": {"input_tokens": 1, "output_tokens": 1}})
    assert "prices_as_of" in [item["field"] for item in refused.value.errors]


def test_rest_and_form_take_the_day(client: Client) -> None:
    spec = asked()
    body = {"model": spec["model"], "traffic": {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1}}
    answer = client.post("/api/v1/advice", {**body, "prices_as_of": day(30)}, content_type="application/json")
    assert answer.status_code == 202 and answer.json()["workload"]["prices_as_of"] == day(30)
    refused = client.post("/api/v1/advice", {**body, "prices_as_of": "soon"}, content_type="application/json")
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "prices_as_of"
    form = forms.WorkloadForm({"model": spec["model"], "prices_as_of": day(30), "traffic.input_tokens.mean": "9",
                               "traffic.output_tokens.mean": "9", "traffic.requests_per_s.mean": "1"})  # fmt: skip
    assert form.is_valid() and form.spec["prices_as_of"] == day(30)
    assert forms.from_spec(form.spec)["prices_as_of"] == day(30)


def test_yaml_reads_a_day_without_quotes() -> None:
    text = "model: m\nprices_as_of: 2026-01-02\ntraffic: {input_tokens: 1, output_tokens: 1, requests_per_s: 1}\n"
    assert workload.parse(text)["prices_as_of"] == "2026-01-02"
