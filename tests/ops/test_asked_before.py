"""The same question asked again: its answer is given again only if nothing that it depends on has changed."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.db.models import F
from django.test import Client

from advisor import advise, deletion, inputs
from advisor.answer.quick import kept
from advisor.later import asked_before
from advisor.models import Advice, Completion, LoadTest, Option, WebhookEndpoint
from catalog import clock
from catalog.accounts import quotas
from catalog.loading import scored
from catalog.models import Calibration, Discount, Organisation, Price, ServedModel
from tests import answers

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
State = Advice.State


@pytest.fixture(autouse=True)
def computed(engine: SimpleNamespace, woken: list[str]) -> None:
    """The engine answers at once, from real snapshots."""
    from advisor.inputs import from_catalog

    engine.snapshot = from_catalog.take_snapshot


def ask(**values: Any) -> Advice:
    organisation = values.pop("organisation", None)
    fresh = values.pop("fresh", False)
    advice = advise.request(answers.spec(**values), organisation, made_by="ada", fresh=fresh)
    if advice.state == State.QUEUED:
        advise.run(advice.pk)
    return Advice.objects.get(pk=advice.pk)


def test_the_answer_is_given_again_to_the_digit() -> None:
    first, again = ask(), ask()
    assert first.state == again.state == State.DONE and first.pk != again.pk and first.reused_from is None
    assert again.reused_from == {"id": str(first.pk), "finished_at": str(first.finished_at)}
    assert again.answer == first.answer and again.snapshot == first.snapshot and again.attempt == 0
    rows = [list(each.options.values("rank", "label", "usd_per_month", "accelerator_slug")) for each in (first, again)]
    assert rows[0] == rows[1] != []
    third = ask()
    assert third.reused_from == again.reused_from
    deletion.delete_advice(first, "ada")
    assert ask().answer == first.answer


def price(**changed: Any) -> None:
    row = Price.objects.filter(accelerator__slug="h100-sxm", organisation=None, term="on_demand").first()
    assert row is not None
    row.pk, row.as_of = None, clock.today()
    for name, value in {"usd_per_hour": row.usd_per_hour * 2, **changed}.items():
        setattr(row, name, value)
    row.save()


def price_in_place() -> None:
    used = {row["instance"] for row in Advice.objects.latest("created_at").snapshot["prices"]}
    rows = Price.objects.filter(instance__in=used, usd_per_hour__gt=0, term="on_demand")
    assert rows.update(usd_per_hour=F("usd_per_hour") * 2)


def discount() -> None:
    row = {"provider": "aws", "discount_fraction": 0.2, "as_of": clock.today(), "source": "contract"}
    Discount.objects.create(organisation=advise.default_organisation(), **row)


def calibration(owned: bool) -> None:
    row = Calibration.objects.filter(name__startswith="accelerator:").first()
    assert row is not None
    row.pk, row.organisation = None, advise.default_organisation() if owned else None
    row.save()


def load_test(comparable: bool = True) -> None:
    option = Option.objects.order_by("pk").first()
    LoadTest.objects.create(option=option, file_sha256="0" * 64, measured={"tpot_ms": {}}, comparable=comparable)


def load_test_switched() -> None:
    LoadTest.objects.update(comparable=True)


def own_model() -> None:
    row = ServedModel.objects.get(hf_id=answers.spec()["model"])
    row.pk, row.organisation, row.slug, row.hf_id = None, advise.default_organisation(), "one-more", "one/more"
    row.save()


def scorecard(folder: Path, predicted: float = 10.0) -> None:
    """Loads a scorecard with one row, which moves the interval of an answer."""
    folder.mkdir(exist_ok=True)
    head = {"engine_version": "0.1.0", "calibration": "a", "as_of": date(2026, 11, 1), "rows": 1}
    (folder / scored.HEAD).write_text(yaml.safe_dump(head))
    (folder / scored.SOURCES).write_text(
        ",".join(scored.SOURCE_COLUMNS) + "\nlab,Lab,a.example,MIT,shown,2026-11-01,x\n"
    )
    row = dict.fromkeys(scored.COLUMNS, "") | {
        "key": "one", "metric": "tpot_ms", "measured": "12", "predicted": str(predicted), "accelerator": "h100-sxm",
        "chips": "1", "model": answers.spec()["model"], "framework": "vllm", "mode": "closed", "isl": "1000",
        "osl": "200", "concurrency": "8", "client": "lab", "client_known": "1", "phase": "serving", "basis": "measured",
    }  # fmt: skip
    (folder / "lab.csv").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    assert scored.load(folder)[0] == 1


def test_a_reload_of_the_scorecard_alone_ends_what_is_kept(tmp_path: Path) -> None:
    """Its rows are counted in no revision: the scorecard's own row is, and no load replaces one without the other."""
    owner = advise.default_organisation()
    scorecard(tmp_path / "a")
    first, revision = ask(), kept.revision_for(owner)
    assert ask().reused_from is not None and kept.revision_for(owner) == revision
    scorecard(tmp_path / "b", predicted=11.0)
    assert kept.revision_for(owner) != revision and ask().reused_from is None and first.is_done


CHANGES: dict[str, Callable[[], object]] = {
    "a price": price,
    "a price of its own": lambda: price(organisation=advise.default_organisation()),
    "a price that is corrected in place": price_in_place,
    "a discount": discount,
    "a shared calibration": lambda: calibration(owned=False),
    "a calibration of its own": lambda: calibration(owned=True),
    "a load test": load_test,
    "a load test that counts now": load_test_switched,
    "a model of its own": own_model,
}


@pytest.mark.parametrize("what", CHANGES)
def test_after_a_change_it_is_computed(what: str) -> None:
    first = ask()
    if what == "a load test that counts now":
        load_test(comparable=False)
        first = ask()
        assert first.reused_from is None
    assert ask().reused_from is not None
    CHANGES[what]()
    assert ask().reused_from is None


VALUES: dict[str, dict[str, Any]] = {
    "load": {"traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 3}},
    "name": {"name": "other"},
    "objective": {"objective": "latency"},
    "budget": {"constraints": {"max_usd_per_month": 50_000}},
    "day of the prices": {"prices_as_of": "2026-11-01"},
}


@pytest.mark.parametrize("what", VALUES)
def test_another_question_is_computed(what: str) -> None:
    ask()
    assert ask(**VALUES[what]).reused_from is None
    assert ask(**VALUES[what]).reused_from is not None


def test_on_another_day_by_another_version_or_organization_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Organisation.objects.create(slug="other", name="Other")
    first = ask()
    assert ask(organisation=other).reused_from is None
    with monkeypatch.context() as patched:
        patched.setattr(asked_before, "ENGINE_VERSION", "0.0.9")
        assert ask().reused_from is None
    with monkeypatch.context() as patched:
        patched.setattr(clock, "today", lambda: date(2026, 12, 24))
        assert ask().reused_from is None
    assert ask().reused_from["id"] == str(first.pk)


def test_what_is_not_complete_or_asks_for_measurements_is_computed() -> None:
    first = ask()
    done = Completion.objects.create(advice=first, engine_version=first.engine_version, state=State.QUEUED)
    assert ask(fresh=True).reused_from is None
    assert ask().reused_from["id"] != str(first.pk)
    Completion.objects.filter(pk=done.pk).update(state=State.DONE)
    assert ask(probe="preferred").reused_from is None and ask(probe="preferred").reused_from is None


def test_a_run_again_is_computed_and_quotas_count_what_is_given_again() -> None:
    first = ask()
    assert advise.rescore(first, "ada").state == State.QUEUED
    quotas.change(first.organisation, {"max_answers_per_day": 3}, "ada")
    assert ask().reused_from is not None
    with pytest.raises(advise.QueueFull):
        ask()


def test_pages_and_rest_say_so(client: Client) -> None:
    first, body = ask(), answers.spec()
    response = client.post("/api/v1/advice", body, "application/json")
    assert response.status_code == 202 or response.json()["state"] == "done"
    again = response.json()
    assert again["reused_from"]["id"] == str(first.pk) and again["state"] == "done"
    assert client.get(f"/api/v1/advice/{again['id']}/summary").json()["reused_from"] == str(first.pk)
    assert "The same question was answered on" in client.get(f"/advice/{again['id']}").content.decode()
    assert client.post("/api/v1/advice?fresh=1", body, "application/json").json()["reused_from"] is None
    assert client.post("/api/v1/advice?fresh=yes", body, "application/json").status_code == 400
    deletion.delete_advice(first, "ada")
    page = client.get(f"/advice/{again['id']}").content.decode()
    assert "The same question was answered on" in page and f"/advice/{first.pk}" not in page


def test_what_is_kept_tells_which_load_tests_are_switched_on() -> None:
    ask()
    option = Option.objects.order_by("pk").first()
    rows = [LoadTest.objects.create(option=option, file_sha256=str(n) * 64, measured={}) for n in range(4)]
    states = set()
    for chosen in (rows[0], rows[3]), (rows[1], rows[2]):  # equal sums of their keys
        LoadTest.objects.update(calibrates=False)
        LoadTest.objects.filter(pk__in=[each.pk for each in chosen]).update(calibrates=True)
        states.add(inputs.measured.own_state(advise.default_organisation()))
    assert len(states) == 2


def test_an_answer_that_is_given_again_tells_its_receivers_of_another_first_choice() -> None:
    first = ask()
    Option.objects.filter(advice=first, rank=1).update(label="what was first then")
    ask(fresh=True)
    endpoint = WebhookEndpoint.objects.create(
        organisation=first.organisation, url="https://example.com", events=["winner.changed"], key_salt="0" * 64
    )
    again = advise.request(answers.spec(), supersedes=first, made_by="ada")
    assert again.reused_from is not None
    (event,) = endpoint.deliveries.all()
    assert json.loads(event.body)["data"]["before"]["label"] == "what was first then"
