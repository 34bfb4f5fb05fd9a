"""The protocol as a state machine: whatever agents, time and persons do, no job is held twice and none is lost."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import Phase
from hypothesis import settings as limits
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from probes.machines import agents, jobs
from probes.models import Agent, Job, Lease, Result
from probes.received import results
from tests.probes import samples
from tests.probes.conftest import make_h200

END = ("done", "failed", "cancelled")
ROUND = 12


class Protocol(RuleBasedStateMachine):
    """Three agents with a memory of their own, a clock, and a server that may forget nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.block = transaction.atomic()
        self.block.__enter__()
        self.moved, self.real = 0.0, timezone.now
        timezone.now = lambda: self.real() + timedelta(seconds=self.moved)  # type: ignore[assignment]
        make_h200()
        self.machines = [self.machine(n) for n in range(3)]
        self.keys: list[str] = [next(agents.keys(machine)) for machine in self.machines]
        self.held: list[tuple[int, Any, int]] = []  # agent, job, attempt: what each believes to be its own
        self.ended: dict[Any, str] = {}
        self.answers: dict[tuple[Any, int], tuple[str, str]] = {}

    def machine(self, number: int) -> Agent:
        token, _ = agents.enrol({})
        facts = {"name": f"m{number}", "agent_version": "1", "labels": {}, "inventory": {"device": samples.H200}}
        return agents.register(token, f"install-{number}", facts)[0]

    def teardown(self) -> None:
        timezone.now = self.real  # type: ignore[assignment]
        transaction.set_rollback(True)
        self.block.__exit__(None, None, None)

    @rule()
    def somebody_asks(self) -> None:
        jobs.request({"suite": "quick"})

    @rule(n=st.integers(0, 2))
    def an_agent_polls(self, n: int) -> None:
        lease = jobs.lease(Agent.objects.get(pk=self.machines[n].pk))
        if lease:
            self.held.append((n, lease.job_id, lease.attempt))

    @rule(seconds=st.sampled_from([1, 15, 61, 400]))
    def time_passes(self, seconds: int) -> None:
        self.moved += seconds

    @rule()
    def the_sweep_comes_by(self) -> None:
        jobs.sweep()

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, ROUND))
    def an_agent_is_alive(self, pick: int) -> None:
        n, job, attempt = self.one(pick)
        try:
            go_on = jobs.heartbeat(self.machines[n], job, attempt)
        except jobs.LostJob:
            return
        row = Job.objects.get(pk=job)
        assert row.attempt == attempt
        if go_on:
            assert row.state == "leased" and row.agent_id == self.machines[n].pk

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, ROUND), retriable=st.booleans())
    def an_agent_gives_up(self, pick: int, retriable: bool) -> None:
        n, job, attempt = self.one(pick)
        jobs.fail(self.machines[n], job, attempt, "crashed", retriable)

    @precondition(lambda self: self.held)
    @rule(n=st.integers(0, 2))
    def an_agent_falls_silent_and_another_takes_over(self, n: int) -> None:
        self.moved += 61
        jobs.sweep()
        self.moved += 301
        self.an_agent_polls(n)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, ROUND), forged=st.booleans(), other=st.booleans())
    def an_agent_sends(self, pick: int, forged: bool, other: bool) -> None:
        n, job, attempt = self.one(pick)
        row = Job.objects.get(pk=job)
        entries = [samples.known(), *samples.memory()]
        document = samples.document(row.spec, results=entries, started_at=samples.begun(n))
        document["duration_s"] = 1e6 if forged else document["duration_s"]
        document["host"] = {"job": str(job), "attempt": attempt, "other": other}
        Lease.objects.filter(job_id=job, attempt=attempt).update(leased_at=timezone.now() - timedelta(seconds=999))
        body = samples.body(document)
        try:
            found = results.receive(
                self.machines[n], job, attempt, body, samples.digest(body), self.signature(n, job, attempt, body)
            )
        except results.OtherBody:
            assert self.answers[job, attempt][0] != samples.digest(body)
            return
        digest, state = self.answers.setdefault((job, attempt), (samples.digest(body), found.state))
        assert (digest, state) == (samples.digest(body), found.state)
        if forged:
            assert found.state in ("quarantined", "superseded")

    def signature(self, n: int, job: Any, attempt: int, body: bytes) -> str:
        lease = Lease.objects.get(job_id=job, attempt=attempt)
        given = {"job_id": job, "attempt": attempt, "nonce": lease.nonce, "spec": lease.job.spec}
        return samples.signature(self.keys[n], given, body)

    @rule(pick=st.integers(0, ROUND))
    def a_person_cancels(self, pick: int) -> None:
        rows = list(Job.objects.order_by("requested_at", "pk"))
        if rows:
            jobs.cancel(rows[pick % len(rows)])

    def one(self, pick: int) -> tuple[int, Any, int]:
        """One of the newest beliefs, half of them the very last."""
        return self.held[-1 - max(0, pick - ROUND // 2) % min(len(self.held), 4)]

    @invariant()
    def what_ended_stays_as_it_ended(self) -> None:
        for job in Job.objects.all():
            if job.state in END:
                assert self.ended.setdefault(job.pk, job.state) == job.state
            else:
                assert job.pk not in self.ended

    @invariant()
    def attempts_are_fenced(self) -> None:
        for job in Job.objects.prefetch_related("leases", "results"):
            assert job.attempt <= 3 and [lease.attempt for lease in job.leases.all()] == list(range(1, job.attempt + 1))
            used = [r for r in job.results.all() if r.state in ("accepted", "late", "quarantined")]
            assert len(used) <= 1, "a job was counted twice"
            assert all(r.attempt == job.attempt for r in used)
            if job.state == "done":
                assert len(used) == 1
            if job.state == "leased":
                assert job.leases.last().ended == ""

    @invariant()
    def nothing_is_stored_of_what_was_not_sent(self) -> None:
        assert Result.objects.count() == len(self.answers)


@pytest.mark.django_db
def test_the_protocol_keeps_its_promises() -> None:
    run_state_machine_as_test(
        Protocol,
        settings=limits(
            max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, phases=[Phase.generate]
        ),
    )
