"""The agents' protocol, call by call."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog import clock
from catalog.models import Accelerator
from probes.machines import agents, jobs
from probes.models import Agent, Job, Lease, Result
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
Later = Callable[[float], None]


def queued(**values: object) -> Job:
    return jobs.request({"suite": "full"}, **values)


def leased(agent: FakeAgent, **values: object) -> tuple[str, int]:
    queued(**values)
    answer = agent.lease()
    assert answer.status_code == 200, answer.content
    return answer.json()["job_id"], answer.json()["attempt"]


def state(job: str) -> str:
    return Job.objects.get(pk=job).state


# --- registration and tokens ------------------------------------------------------------------------------------


def test_registering_gives_a_token_that_is_stored_hashed_and_the_servers_pace() -> None:
    token, _ = agents.enrol({"site": "lab"})
    answer = FakeAgent(token="none").register(token)
    assert answer.status_code == 201
    given = answer.json()
    assert given["token"].startswith("agt_") and given["poll_s"] >= 5 and given["max_result_bytes"] == 4 * 2**20
    row = Agent.objects.get(pk=given["agent_id"])
    assert given["token"] not in str(vars(row)) and row.token_hash == agents.hashed(given["token"])
    assert row.labels == {"site": "lab"}


def test_an_enrolment_token_registers_one_installation_only() -> None:
    token, _ = agents.enrol({})
    first, agent = FakeAgent(token="none"), FakeAgent("other", token="none")
    assert first.register(token).status_code == 201
    refused = agent.register(token)
    assert refused.status_code == 401 and "Create a new one" in refused.json()["detail"]


def test_the_same_installation_may_register_again_when_the_answer_was_lost() -> None:
    token, _ = agents.enrol({})
    agent = FakeAgent(token="none")
    first, second = agent.register(token).json(), agent.register(token).json()
    assert first["agent_id"] == second["agent_id"] and Agent.objects.count() == 1
    agent.token = first["token"]
    assert agent.lease().status_code == 401
    agent.token = second["token"]
    assert agent.lease().status_code == 204


def test_an_enrolment_token_ends_after_an_hour(later: Later) -> None:
    token, _ = agents.enrol({})
    later(3601)
    assert FakeAgent(token="none").register(token).status_code == 401


def test_the_enrolments_labels_win_and_the_chip_comes_from_what_the_device_reports(h200: Accelerator) -> None:
    token, _ = agents.enrol({"site": "lab"})
    FakeAgent(token="none").register(token, labels={"site": "elsewhere", "accelerator": "b200", "rack": "7"})
    assert Agent.objects.get().labels == {"site": "lab", "rack": "7", "accelerator": "h200-sxm"}


def test_a_revoked_token_is_refused_and_cannot_register_again_with_its_enrolment() -> None:
    token, _ = agents.enrol({})
    agent = FakeAgent(token="none")
    agent.token = agent.register(token).json()["token"]
    agents.revoke(Agent.objects.get())
    assert agent.lease().status_code == 401
    assert agent.register(token).status_code == 401


def test_a_rotated_token_works_and_the_former_one_only_five_minutes_more(later: Later) -> None:
    agent = FakeAgent()
    new = agent.post("token/rotate", {}).json()["token"]
    assert agent.lease().status_code == 204
    later(301)
    assert agent.lease().status_code == 401
    agent.token = new
    assert agent.lease().status_code == 204


@pytest.mark.parametrize("headers", [{"Agent-Protocol": "1"}, {"Agent-Protocol": ""}])
def test_an_unknown_protocol_is_426_with_what_to_do(headers: dict[str, str]) -> None:
    answer = FakeAgent().post("lease", {}, **headers)
    assert answer.status_code == 426 and "agent.pyz" in answer.json()["detail"]
    assert answer["Content-Type"] == "application/problem+json"


def test_a_session_or_no_token_is_401() -> None:
    agent = FakeAgent()
    agent.token = ""
    answer = agent.lease()
    assert answer.status_code == 401 and answer["WWW-Authenticate"] == "Bearer"


# --- polling ----------------------------------------------------------------------------------------------------


def test_a_poll_without_work_says_when_to_ask_again() -> None:
    answer = FakeAgent().lease()
    assert answer.status_code == 204 and answer["Retry-After"] == "5"


def test_a_poll_makes_at_most_three_queries_and_writes_once_a_minute(later: Later) -> None:
    agent = FakeAgent()
    queued(wanted={"site": "elsewhere"})
    agent.lease()
    with CaptureQueriesContext(
        connection,
    ) as calm:
        agent.lease()
    assert len(calm) == 2 and not any("UPDATE" in q["sql"] for q in calm)
    later(61)
    with CaptureQueriesContext(connection) as minute:
        agent.lease()
    assert len(minute) == 3 and sum("UPDATE" in q["sql"] for q in minute) == 1


def test_the_pace_grows_with_the_number_of_agents() -> None:
    agent = FakeAgent()
    row = Agent.objects.get()
    Agent.objects.bulk_create(
        Agent(organisation=row.organisation, name=f"a{n}", token_hash=f"{n:064}", last_seen_at=row.last_seen_at)
        for n in range(1000)
    )
    agents.cache.clear()
    assert agents.pace().poll_s == 11  # 1,001 agents at 100 polls/s
    assert agent.lease()["Retry-After"] == "11"


def test_a_job_goes_to_an_agent_with_its_labels_only() -> None:
    lab, other = FakeAgent("lab", labels={"site": "lab"}), FakeAgent("other")
    queued(wanted={"site": "lab"})
    assert other.lease().status_code == 204
    assert lab.lease().status_code == 200


def test_a_job_for_one_agent_is_given_to_no_other() -> None:
    first, second = FakeAgent("a"), FakeAgent("b")
    queued(wanted_agent=Agent.objects.get(pk=second.pk))
    assert first.lease().status_code == 204
    assert second.lease().status_code == 200


def test_a_job_with_kinds_that_the_machines_owner_bars_is_left_to_others() -> None:
    agent = FakeAgent()
    jobs.request({"suite": "custom", "kinds": ["gemm", "host_copy"]})
    assert agent.lease(kinds=["gemm"]).status_code == 204
    assert agent.lease(kinds=["gemm", "host_copy"]).status_code == 200


def test_a_lease_carries_data_and_limits() -> None:
    agent = FakeAgent()
    queued()
    given = agent.lease().json()
    assert set(given) == {
        "job_id", "attempt", "nonce", "suite_version", "spec", "lease_s", "heartbeat_s", "deadline_s",
    }  # fmt: skip
    assert set(given["spec"]) == {"suite", "kinds", "max_s", "max_bytes"}
    assert given["deadline_s"] == 1.5 * 600 + 120


def test_an_agent_with_a_live_lease_gets_no_second_job() -> None:
    agent = FakeAgent()
    leased(agent)
    queued()
    assert agent.lease().status_code == 204


# --- heartbeats, cancelling and giving up -----------------------------------------------------------------------


def test_a_heartbeat_keeps_the_lease_and_shows_how_far_it_is(later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    for _ in range(3):
        later(50)
        assert agent.heartbeat(job, attempt, done=3, total=10).json()["continue"] is True
        assert jobs.sweep() == {"probes_requeued": 0, "probes_failed": 0}
    row = Job.objects.get(pk=job)
    assert (row.stage, row.done_steps, row.total_steps) == ("gemm", 3, 10)


def test_a_cancelled_job_says_stop_at_the_next_heartbeat_and_takes_no_result() -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    assert jobs.cancel(Job.objects.get(pk=job))
    assert agent.heartbeat(job, attempt).json()["continue"] is False
    assert agent.send(job, attempt, samples.body(samples.document())).json()["state"] == "superseded"
    assert state(job) == "cancelled"


def test_heartbeats_cannot_stretch_an_attempt_beyond_its_time(later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    Lease.objects.update(deadline_at=jobs.lease_end())
    later(30)
    assert agent.heartbeat(job, attempt).json()["continue"] is True
    later(31)
    assert agent.heartbeat(job, attempt).json()["continue"] is False
    assert jobs.sweep()["probes_requeued"] == 1


def test_a_failed_attempt_is_tried_again_after_growing_pauses_and_three_times_in_all(later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    for number, pause in ((1, 10), (2, 60)):
        assert agent.fail(job, number).status_code == 200
        assert agent.lease().status_code == 204
        later(pause)
        assert agent.lease().json()["attempt"] == number + 1
    agent.fail(job, 3, log="line\nthe device is gone")
    row = Job.objects.get(pk=job)
    assert row.state == "failed" and row.error == "crashed: the device is gone"
    assert [lease.ended for lease in row.leases.all()] == ["failed"] * 3


def test_what_cannot_be_helped_is_not_tried_again() -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    agent.fail(job, attempt, retriable=False)
    assert state(job) == "failed"


def test_a_log_larger_than_16_kb_is_refused() -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    answer = agent.fail(job, attempt, log="x" * 16_385)
    assert answer.status_code == 400 and answer.json()["errors"][0]["field"] == "log"


def test_a_killed_agents_job_goes_to_another_and_the_old_attempt_is_told(later: Later) -> None:
    dead, alive = FakeAgent("dead"), FakeAgent("alive")
    job, attempt = leased(dead)
    later(61)
    assert jobs.sweep() == {"probes_requeued": 1, "probes_failed": 0}
    assert alive.lease().status_code == 204
    later(10)
    given = alive.lease().json()
    assert (given["job_id"], given["attempt"]) == (job, 2)
    assert dead.heartbeat(job, attempt).status_code == 409
    later(3600)  # long after its own deadline, too
    assert dead.heartbeat(job, attempt).status_code == 409
    late = dead.send(job, attempt, samples.body(samples.document()))
    assert late.json()["state"] == "superseded"
    assert state(job) == "leased"


def test_three_lost_machines_end_a_job_with_the_reason(later: Later) -> None:
    agent = FakeAgent()
    job, _ = leased(agent)
    for pause in (10, 60, 0):
        later(61)
        jobs.sweep()
        later(pause)
        agent.lease()
    row = Job.objects.get(pk=job)
    assert row.state == "failed" and "lost 3 times" in row.error


def test_a_cut_network_that_heals_before_anybody_took_over_keeps_the_attempt(later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    later(61)
    jobs.sweep()
    assert state(job) == "queued"
    assert agent.heartbeat(job, attempt).json()["continue"] is True
    assert state(job) == "leased" and agent.send(job, attempt, honest()).json()["state"] in ("accepted", "quarantined")


def test_a_revoked_agents_job_is_taken_back_at_once(later: Later) -> None:
    agent = FakeAgent()
    job, _ = leased(agent)
    agents.revoke(Agent.objects.get())
    later(1)
    assert jobs.sweep()["probes_requeued"] == 1 and state(job) == "queued"


def test_a_job_that_nobody_takes_ends_with_the_reason(later: Later) -> None:
    job = queued(wanted={"site": "nowhere"})
    later(24 * 3600 + 1)
    assert jobs.sweep()["probes_failed"] == 1
    job.refresh_from_db()
    assert job.state == "failed" and "No machine took it" in job.error


def test_another_agents_job_is_not_there() -> None:
    owner, thief = FakeAgent("owner"), FakeAgent("thief")
    job, attempt = leased(owner)
    assert thief.heartbeat(job, attempt).status_code == 404
    assert thief.fail(job, attempt).status_code == 404
    assert thief.send(job, attempt, b"{}").status_code == 404
    assert state(job) == "leased"


# --- results ----------------------------------------------------------------------------------------------------


def honest() -> bytes:
    return samples.body(samples.document())


def settled(job: str, seconds: float = 600) -> None:
    """As if the lease had been taken so long ago: the sample took some seconds of device time."""
    Lease.objects.filter(job_id=job).update(leased_at=clock.read() - jobs.timedelta(seconds=seconds))


def test_a_result_is_accepted_once_and_the_same_body_gives_the_same_answer(h200: Accelerator) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    first, second = agent.send(job, attempt, honest()), agent.send(job, attempt, honest())
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == {"state": "accepted", "reasons": []}
    result = Result.objects.get()
    assert state(job) == "done" and result.accelerator == h200
    assert result.measurements.count() == len(samples.document()["results"])


def test_another_body_for_the_same_attempt_is_409(h200: Accelerator) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    agent.send(job, attempt, honest())
    assert agent.send(job, attempt, honest() + b" ").status_code == 409
    assert Result.objects.count() == 1


def test_a_body_that_was_cut_on_its_way_is_refused_and_may_be_sent_again(h200: Accelerator) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    whole = honest()
    assert agent.send(job, attempt, whole[:-10], samples.digest(whole)).status_code == 400
    assert agent.send(job, attempt, whole).json()["state"] == "accepted"


def test_a_result_after_its_lease_is_late_and_used_when_nobody_took_over(h200: Accelerator, later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    later(90)
    jobs.sweep()
    assert agent.send(job, attempt, honest()).json()["state"] == "late"
    assert state(job) == "done"
    later(600)
    assert agent.lease().status_code == 204


def test_a_result_after_the_last_lost_attempt_is_late_and_the_job_stays_failed(h200: Accelerator, later: Later) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    Job.objects.update(attempt=3)
    Lease.objects.update(attempt=3)
    agent.leases[job, 3] = {**agent.leases[job, attempt], "attempt": 3}
    settled(job)
    later(90)
    jobs.sweep()
    assert state(job) == "failed"
    assert agent.send(job, 3, honest()).json()["state"] == "late"
    assert state(job) == "failed"


def test_a_body_over_the_limit_is_413_and_an_unreadable_one_422_which_ends_the_job() -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    assert agent.send(job, attempt, b"x" * (4 * 2**20 + 1)).status_code == 413
    answer = agent.send(job, attempt, b'{"schema": "assay-probe/1"}')
    assert answer.status_code == 422 and {"field", "message"} <= set(answer.json()["errors"][0])
    row = Job.objects.get(pk=job)
    assert row.state == "failed" and "could not be read" in row.error
    assert agent.send(job, attempt, b'{"schema": "assay-probe/1"}').status_code == 422
    assert Result.objects.get().state == "rejected"


@pytest.mark.parametrize("minutes", [-20 * 60, 64])
def test_an_agents_clock_that_is_a_little_wrong_does_not_matter(h200: Accelerator, minutes: float) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    skewed = samples.body(samples.document(started_at=samples.begun(minutes)))
    assert agent.send(job, attempt, skewed).json()["state"] == "accepted"


@pytest.mark.parametrize(
    ("started_at", "word"),
    [("2031-01-01T00:00:00+00:00", "in the future"), ("1970-01-01T00:00:00+00:00", "too long ago")],
)
def test_a_result_of_the_future_or_of_long_ago_is_refused_with_what_to_do(
    h200: Accelerator, started_at: str, word: str
) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    settled(job)
    answer = agent.send(job, attempt, samples.body(samples.document(started_at=started_at)))
    assert answer.status_code == 422 and state(job) == "failed"
    (error,) = answer.json()["errors"]
    assert error["field"] == "started_at" and word in error["message"] and "set the machine's clock" in error["message"]


def test_a_sweep_takes_nothing_back_that_ended_while_it_waited(
    later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is committed between the sweep's look and its write, as on PostgreSQL under load."""
    jobs.request({"suite": "quick"})
    agent = FakeAgent()
    given = agent.lease().json()
    later(90)
    write, ended = jobs.give_up, []

    def late_result(*args: object, **kwargs: object) -> str:
        ended.append(jobs.finish(jobs.lease_of(Agent.objects.get(), given["job_id"], given["attempt"])))
        with CaptureQueriesContext(connection) as queries:
            found = write(*args, **kwargs)  # type: ignore[arg-type]
        # A subquery would be read from before the result; the row's own columns are read anew once it is free.
        assert all("SELECT" not in q["sql"] for q in queries if q["sql"].startswith("UPDATE")), queries.captured_queries
        return found

    monkeypatch.setattr(jobs, "give_up", late_result)
    assert jobs.sweep()["probes_requeued"] == 0
    assert ended == ["late"] and Job.objects.get().state == "done"
