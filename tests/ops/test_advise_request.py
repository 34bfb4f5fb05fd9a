"""What happens between a question and its queued row."""

import pytest
from django.db import transaction
from kombu.exceptions import OperationalError

from advisor import advise, inputs, workload
from advisor.inputs.check import check_catalog
from advisor.models import Advice, Workload
from catalog.models import Organisation
from tests.answers import spec

State = Advice.State


@pytest.mark.django_db(transaction=True)
def test_a_request_is_a_queued_row_and_one_message_after_the_commit(woken: list[str]) -> None:
    with transaction.atomic():
        advice = advise.request(spec())
        assert woken == []
    assert woken == [str(advice.pk)]
    assert (advice.state, advice.attempt) == (State.QUEUED, 0)
    assert advice.workload.spec == spec()


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_away_does_not_fail_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object, **options: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(advise.app, "send_task", away)
    assert advise.request(spec()).state == State.QUEUED


@pytest.mark.django_db
def test_the_same_key_and_question_give_the_same_advice(woken: list[str]) -> None:
    first = advise.request(spec(), idempotency_key="k")
    assert advise.request(spec(), idempotency_key="k") == first
    assert Advice.objects.count() == Workload.objects.count() == 1


@pytest.mark.django_db
def test_a_key_that_comes_again_with_another_question_is_refused(woken: list[str]) -> None:
    advise.request(spec(), idempotency_key="k")
    with pytest.raises(advise.KeyReused):
        advise.request(spec(name="other"), idempotency_key="k")
    assert Advice.objects.count() == 1


@pytest.mark.django_db
def test_two_requests_with_one_key_at_the_same_moment_give_one_advice(
    woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = advise.request(spec(), idempotency_key="k")
    answers = iter([None, first])
    monkeypatch.setattr(advise, "earlier_request", lambda *args: next(answers))
    assert advise.request(spec(), idempotency_key="k") == first
    assert Advice.objects.count() == Workload.objects.count() == 1


@pytest.mark.django_db
def test_keys_of_two_organisations_do_not_meet(woken: list[str]) -> None:
    other = Organisation.objects.create(slug="other", name="Other")
    assert advise.request(spec(), idempotency_key="k") != advise.request(spec(), other, idempotency_key="k")


@pytest.mark.django_db
def test_a_question_about_an_unknown_model_leaves_no_row(woken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "check_catalog", check_catalog)
    with pytest.raises(workload.WorkloadError) as refused:
        advise.request(workload.parse({**spec(), "model": "no/such-model"}))
    assert refused.value.errors[0]["field"] == "model"
    assert not Advice.objects.exists()


@pytest.fixture(autouse=True)
def known_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "check_catalog", lambda spec, organisation: None)
