"""A question that asks for probes waits for machines, with a limit, and its answer says what they did."""

from collections.abc import Callable
from typing import Any

import pytest

from advisor import advise
from advisor.inputs.current import catalog_chip
from advisor.models import Advice, Workload
from catalog import clock
from catalog.models import Accelerator
from probes import periodic
from probes.fitted import fitting
from probes.machines import jobs
from probes.models import Job, Lease, Result
from tests import answers
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
Later = Callable[[float], None]


@pytest.fixture
def engine(engine: Any) -> Any:
    """The quick engine, with chips as they are."""
    engine.chip = catalog_chip
    return engine


def asked(probe: str, **values: Any) -> Advice:
    spec = answers.spec(probe=probe, **values)
    workload = Workload.objects.create(organisation=advise.default_organisation(), name="small", spec=spec)
    return advise.queue(workload)


def answered(advice: Advice) -> dict[str, Any]:
    for _ in range(advise.ready().count()):  # older ones are first
        advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == "done", advice.error
    return advice.result or {}


def measures(agent: FakeAgent, body: bytes | None = None) -> None:
    given = agent.lease().json()
    Lease.objects.update(leased_at=clock.read() - jobs.timedelta(seconds=600))
    document = samples.document(Job.objects.get(pk=given["job_id"]).spec)
    agent.send(given["job_id"], given["attempt"], body or samples.body(document))
    for result in Result.objects.filter(fitted_at=None):
        fitting.run(result.pk)


def test_no_is_not_held_and_runs_at_once(h200: Accelerator, engine: Any) -> None:
    assert "probes" not in answered(asked("no"))


def test_a_required_probe_holds_the_advice_until_a_machine_has_measured(h200: Accelerator, engine: Any) -> None:
    agent, advice = FakeAgent(trusted=True), asked("required")
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == "queued" and advice.is_held
    assert periodic.probe_for_advice() == 0 and Job.objects.get().advice == advice
    assert periodic.probe_for_advice() == 0
    measures(agent)
    assert periodic.probe_for_advice() == 1
    result = answered(advice)
    assert result["probes"]["measured"] == ["h200-sxm"] and "new figures for h200-sxm" in result["probes"]["said"]


def test_a_result_that_waits_for_a_second_machine_is_said(h200: Accelerator, engine: Any) -> None:
    agent, advice = FakeAgent(), asked("required")
    periodic.probe_for_advice()
    measures(agent)
    assert periodic.probe_for_advice() == 1
    told = answered(advice)["probes"]
    assert told["measured"] == [] and "1 result waiting for a second machine or a person" in told["said"]


def test_two_sweeps_at_the_same_moment_ask_a_machine_once(h200: Accelerator) -> None:
    FakeAgent()
    advice = asked("required")
    for _ in range(2):  # the second one read the advice before the first one asked
        periodic.queue_probes(advice, list(periodic.agents.online(advice.organisation)))
    assert Job.objects.count() == 1


def test_a_result_that_waits_for_its_fit_still_holds(h200: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, advice = FakeAgent(), asked("required")
    periodic.probe_for_advice()
    with monkeypatch.context() as slow:
        slow.setattr(fitting, "run", lambda pk: None)
        measures(agent)
    assert periodic.probe_for_advice() == 0
    assert advice.pk in advise.held().values_list("pk", flat=True)


def test_required_waits_for_a_machine_to_come_and_goes_on_at_the_limit(
    h200: Accelerator, engine: Any, later: Later
) -> None:
    advice = asked("required")
    assert periodic.probe_for_advice() == 0
    later(601)
    assert periodic.probe_for_advice() == 0
    assert "no machine measured within 600 s" in answered(advice)["probes"]["said"]


def test_preferred_does_not_wait_when_no_machine_is_there(h200: Accelerator, engine: Any) -> None:
    advice = asked("preferred")
    assert periodic.probe_for_advice() == 1
    assert "is online" in answered(advice)["probes"]["said"]


def test_preferred_waits_for_a_machine_that_is_there(h200: Accelerator) -> None:
    FakeAgent()
    asked("preferred")
    assert periodic.probe_for_advice() == 0 and Job.objects.count() == 1


def test_a_chip_that_the_question_bars_is_not_measured(h200: Accelerator) -> None:
    FakeAgent()
    asked("preferred", constraints={"accelerators": {"deny": ["h200-sxm"]}})
    assert periodic.probe_for_advice() == 1 and not Job.objects.exists()


def test_a_chip_measured_this_week_is_not_measured_again(h200: Accelerator, engine: Any) -> None:
    agent = FakeAgent(trusted=True)
    asked("required")
    periodic.probe_for_advice()
    measures(agent)
    second = asked("required")
    assert periodic.probe_for_advice() == 2
    assert "in the last 7 days" in answered(second)["probes"]["said"]


def test_a_machine_that_fails_lets_the_advice_go_on_and_say_so(h200: Accelerator, engine: Any) -> None:
    agent, advice = FakeAgent(), asked("required")
    periodic.probe_for_advice()
    given = agent.lease().json()
    agent.fail(given["job_id"], given["attempt"], retriable=False)
    assert periodic.probe_for_advice() == 1
    result = answered(advice)
    assert result["probes"]["measured"] == [] and "1 job without a result" in result["probes"]["said"]


def test_a_result_in_quarantine_is_said(h200: Accelerator, engine: Any) -> None:
    agent, advice = FakeAgent(), asked("required")
    periodic.probe_for_advice()
    measures(agent, samples.body(samples.document(Job.objects.get().spec, duration_s=0.001)))
    periodic.probe_for_advice()
    assert "1 result in quarantine" in answered(advice)["probes"]["said"]


def test_cancelling_the_advice_cancels_its_jobs(h200: Accelerator) -> None:
    FakeAgent()
    advice = asked("required")
    periodic.probe_for_advice()
    advise.cancel(advice)
    periodic.probe_for_advice()
    assert Job.objects.get().state == "cancelled"


def test_the_sweep_sends_a_held_advice_only_when_its_time_is_over(woken: list[str], later: Later) -> None:
    advice = asked("required")
    later(30)
    assert advise.sweep()["sent"] == 0
    later(600)
    assert advise.sweep()["sent"] == 1 and woken == [str(advice.pk)]
