"""Results that cannot be true are refused or kept apart, and no calibration comes of them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from catalog import clock
from catalog.models import Accelerator, Calibration
from probes.machines import jobs
from probes.models import Agent, Job, Lease, Result
from probes.received import intake, results
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
Change = Callable[[dict[str, Any]], Any]


def of_kind(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [e for e in document["results"] if e["kind"] == kind]


def faster(document: dict[str, Any], kind: str, times: float, *, others: bool = True) -> None:
    for e in of_kind(document, kind) if others else of_kind(document, kind)[-1:]:
        e["time_s"] = {k: v / times if k != "n" else v for k, v in e["time_s"].items()}


def each(document: dict[str, Any], **values: Any) -> None:
    for e in document["results"]:
        e.update(copy.deepcopy(values))


def spread(document: dict[str, Any]) -> None:
    for e in document["results"]:
        e["time_s"]["p90"] = 1.3 * e["time_s"]["median"]


def without(document: dict[str, Any], kind: str) -> None:
    document["results"] = [e for e in document["results"] if e["kind"] != kind]


def known(document: dict[str, Any], **check: Any) -> None:
    of_kind(document, "known_answer")[0]["check"].update(check)


def device(document: dict[str, Any], **facts: Any) -> None:
    document["device"].update(facts)


def moved_more(document: dict[str, Any]) -> None:
    of_kind(document, "memory_read")[-1]["key"]["bytes"] = 10**12


def duplicate(document: dict[str, Any]) -> None:
    document["results"].append(copy.deepcopy(document["results"][0]))


def first(document: dict[str, Any]) -> dict[str, Any]:
    return document["results"][0]


# what was forged -> how the document is changed, and a word of the reason
KEPT_APART: dict[str, tuple[Change, str]] = {
    "matrix multiplies above the data sheet": (lambda d: faster(d, "gemm", 1.6), "above the datasheet"),
    "one multiply above the data sheet": (lambda d: faster(d, "gemm", 2, others=False), "above the datasheet"),
    "memory faster than it is": (lambda d: faster(d, "memory_read", 1.2), "is possible"),
    "attention above the peak": (lambda d: faster(d, "attention_prefill", 2), "above the datasheet"),
    "experts above the peak": (lambda d: faster(d, "grouped_gemm", 3), "above the datasheet"),
    "multiplies of another, slower chip": (lambda d: faster(d, "gemm", 1 / 200), "of the datasheet"),
    "memory of another, slower chip": (lambda d: faster(d, "memory_read", 1 / 200), "of the datasheet"),
    "another chip's name": (lambda d: device(d, name="NVIDIA H100 80GB HBM3"), "is not the h200-sxm"),
    "memory that is 4 % off": (lambda d: device(d, memory_bytes=int(140.4 * 2**30 * 1.04)), "is not the h200-sxm"),
    "runs longer than their duration": (lambda d: d.update(duration_s=0.01), "add up to"),
    "longer than its lease": (lambda d: d.update(duration_s=5000.0), "its lease was"),
    "times that spread": (spread, "spread by more than"),
    "a throttled chip": (lambda d: each(d, throttled=True), "throttled"),
    "no known answer": (lambda d: without(d, "known_answer"), "is missing"),
    "a wrong known answer": (lambda d: known(d, ok=False), "is wrong"),
    "a known answer that only says it is right": (lambda d: known(d, error=0.5), "is wrong"),
    "another spec": (lambda d: d.update(spec_hash="0" * 64), "its spec differs"),
    "a read larger than the memory": (moved_more, "larger than the memory"),
}
REFUSED: dict[str, Change] = {
    "not a number": lambda d: first(d)["time_s"].update(median=float("nan")),
    "infinity": lambda d: first(d).update(flops=float("inf")),
    "a time of zero": lambda d: first(d)["time_s"].update(median=0.0, p10=0.0),
    "a negative time": lambda d: first(d)["time_s"].update(p10=-1.0),
    "percentiles out of order": lambda d: first(d)["time_s"].update(p10=1.0, p90=0.5),
    "a power limit of four hundred digits": lambda d: d["device"].update(power_limit_w=10**400),
    "an unknown kind": lambda d: first(d).update(kind="shell"),
    "an unknown path": lambda d: first(d).update(path="hand-made"),
    "another format": lambda d: d.update(schema="assay-probe/2"),
    "a field too many": lambda d: d.update(command="rm -rf /"),
    "a field too few": lambda d: d.pop("device"),
    "a measurement twice": duplicate,
    "a time without a zone": lambda d: d.update(started_at="2026-11-21T09:30:00"),
    "text for a number": lambda d: d.update(duration_s="12"),
    "nothing measured": lambda d: d.update(results=[]),
    "nested too deeply": lambda d: d["host"].update(a=[[[[[[[[[[1]]]]]]]]]]),
    "text that no database keeps": lambda d: d["device"].update(name="H200\0"),
    "half of a surrogate pair": lambda d: d["host"].update({"\ud800": 1}),
    "an array as document": lambda d: d.update(__list=True),
}


@pytest.fixture
def sent(h200: Accelerator) -> Callable[[bytes], Any]:
    """Sends a body as the result of a fresh job, whose lease is ten minutes old."""

    def send(body: bytes) -> Any:
        agent = FakeAgent(f"gpu-{Agent.objects.count()}")
        jobs.request({"suite": "full"})
        given = agent.lease().json()
        Lease.objects.update(leased_at=clock.read() - jobs.timedelta(seconds=600))
        return agent.send(given["job_id"], given["attempt"], body)

    return send


def forged(change: Change) -> bytes:
    document = copy.deepcopy(samples.document())
    change(document)
    return json.dumps([document] if document.pop("__list", False) else document).encode()


def test_the_honest_document_is_accepted(sent: Any) -> None:
    assert sent(samples.body(samples.document())).json() == {"state": "accepted", "reasons": []}


@pytest.mark.parametrize("what", KEPT_APART)
def test_what_cannot_be_true_is_kept_apart_with_its_reason(what: str, sent: Any) -> None:
    change, word = KEPT_APART[what]
    answer = sent(forged(change)).json()
    assert answer["state"] == "quarantined"
    assert any(word in reason for reason in answer["reasons"]), answer["reasons"]
    assert not Calibration.objects.exists() and not Result.objects.filter(state__in=results.USED).exists()


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_as_the_format_says_is_refused(what: str, sent: Any) -> None:
    answer = sent(forged(REFUSED[what]))
    assert answer.status_code == 422, answer.content
    assert answer["Content-Type"] == "application/problem+json" and answer.json()["errors"]
    assert Result.objects.get().state == "rejected" and Job.objects.get().state == "failed"


def test_the_same_result_for_another_job_is_kept_apart(sent: Any) -> None:
    body = samples.body(samples.document())
    assert sent(body).json()["state"] == "accepted"
    assert "identical to result" in sent(body).json()["reasons"][0]


def test_a_figure_far_from_all_other_machines_with_this_chip_is_kept_apart(sent: Any) -> None:
    for n in range(4):
        body = samples.body(samples.document(started_at=samples.begun(n)))
        assert sent(body).json()["state"] == "accepted"
    answer = sent(forged(lambda d: faster(d, "gemm", 0.8))).json()
    assert answer["state"] == "quarantined" and "4 other machines" in answer["reasons"][0]


def test_the_newest_result_of_each_other_machine_is_what_counts(h200: Accelerator, monkeypatch: Any) -> None:
    """Of one machine with more results than are read: its oldest say nothing any more."""
    monkeypatch.setattr(results, "MAX_PEERS", 3)
    agent, now = Agent.objects.create(organisation=results.default_organisation(), name="a"), clock.read()
    common = {"organisation": agent.organisation, "agent": agent, "accelerator": h200, "state": "accepted"}
    for age, factor in ((9, 1.0), (8, 1.0), (7, 1.0), (1, 0.5)):
        document = samples.document()
        faster(document, "gemm", factor)
        Result.objects.create(
            **common, document=document, suite="full", suite_version=document["suite_version"], method="1",
            received_at=now - jobs.timedelta(days=age),
        )  # fmt: skip
    newest = results.peers(h200, None, samples.document(), agent.organisation).same_suite["gemm bf16"]
    assert newest == [pytest.approx(0.5 * samples.PEAK["bf16"] * samples.TRUE["matmul_16_fraction"], rel=0.1)]


def test_a_narrow_dtype_slower_than_half_of_a_wide_one_is_remarked_but_used(sent: Any) -> None:
    def slow_fp8(d: dict[str, Any]) -> None:
        for e in of_kind(d, "gemm"):
            if e["key"]["dtype"] == "fp8":
                e["time_s"] = {k: v * 5 if k != "n" else v for k, v in e["time_s"].items()}
        d["duration_s"] *= 5

    assert sent(forged(slow_fp8)).json()["state"] == "accepted"
    assert any("fp8 is" in text for text in Result.objects.get().remarks)


def test_a_wrong_kernel_is_remarked_and_its_time_is_not_used(sent: Any) -> None:
    answer = sent(forged(lambda d: of_kind(d, "gemm")[0]["check"].update(ok=False)))
    assert answer.json()["state"] == "accepted"
    assert "its result was wrong" in Result.objects.get().remarks[0]


def test_a_chip_that_the_catalog_does_not_know_is_shown_but_calibrates_nothing(sent: Any) -> None:
    Accelerator.objects.all().delete()
    assert sent(samples.body(samples.document())).json()["state"] == "accepted"
    result = Result.objects.get()
    assert result.accelerator is None and "not used to calibrate" in result.remarks[0]


def test_a_duplicate_key_in_the_json_is_refused() -> None:
    with pytest.raises(intake.IntakeError, match="twice"):
        intake.read(b'{"schema": 1, "schema": 2}', 100)
