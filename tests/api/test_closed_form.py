"""Estimates by closed formulas: many in one call are those of single calls, and those beside a simulation."""

import json
import random
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.answer import closed_estimates
from advisor.api.bulk_estimates import in_closed_form
from advisor.result import ClosedEstimate
from catalog.models import Accelerator, ServedModel

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ONE, MANY = "/api/v1/estimate", "/api/v1/estimates"
LLAMA = "meta-llama/Llama-3.1-8B"
BASE = {"model": LLAMA, "accelerator": "h100-sxm", "weights": "fp8", "isl": 1000, "osl": 200, "concurrency": 8}
CLOSED = {**BASE, "method": "closed_form"}
SHARED = ("memory", "fits", "kv_capacity_tokens", "usd_per_hour", "provider", "closed_form", "label", "concurrency")


def post(path: str, body: Any, **headers: str) -> Any:
    return Client().post(path, body, content_type="application/json", headers=headers)


def bulk(body: Any) -> list[Any]:
    answer = post(MANY, body, Accept="application/x-ndjson")
    assert answer.status_code == 200, answer.getvalue()
    found = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert [each["index"] for each in found] == list(range(len(found)))
    return found


def single(entry: Any) -> tuple[Any, Any]:
    """(estimate, problem)"""
    answer = post(ONE, entry)
    return (answer.json(), None) if answer.status_code == 200 else (None, answer.json())


def drawn(chance: random.Random) -> dict[str, Any]:
    """Any model on any accelerator, with values that a caller may send, wrong ones included."""
    models, chips = (
        ServedModel.objects.values_list("hf_id", flat=True),
        Accelerator.objects.values_list("slug", flat=True),
    )
    asked: dict[str, Any] = {
        "method": "closed_form",
        "model": chance.choice([LLAMA, *models, "unknown/model"]),
        "accelerator": chance.choice([*chips, "h100-sxm"]),
        "weights": chance.choice(["bf16", "fp8", "int4", "none"]),
        "isl": chance.choice([1, 100, 1000, 1001, 20_000, 10**6, 0, True, "1k", 2.5]),
        "osl": chance.choice([0, 1, 200, 201, 3000, None]),
    }
    optional: dict[str, list[Any]] = {
        "tp": [1, 2, 4, 8, 3],
        "pp": [1, 2],
        "dp": [1, 2],
        "concurrency": [1, 8, 64, 1000, "max", 10**7, None],
        "client": ["steady", "static", "burst:4", "poisson:2"],
        "rate": [0.5, 20, 1e7],
        "prefix_cache_hit_rate": [0.5],
        "osl_p95": [900],
        "use_measurements": [False],
        "host_speed_ratio": [2.0],
        "seats": [4],
        "users": [{"active": 50, "think_s": 10}],
        "prefill_pool": [{"tp": 1}],
        "speculative": [{"method": "ngram", "k": 3, "acceptance": 0.5}],
    }
    for key, values in optional.items():
        if chance.random() < 0.25:
            asked[key] = chance.choice(values)
    return asked


def checked(seed: int, count: int) -> None:
    chance = random.Random(seed)
    entries = [drawn(chance) for _ in range(count)]
    for known in entries[: count // 2]:  # the same kind with other numbers, which shares its validation
        entries.append({**known, "isl": chance.choice([1, 7, 990, 1500, 300_000]), "osl": chance.choice([1, 190, 210])})
        other = chance.choice(entries)  # another name in a form that is kept
        entries.append(known | {key: other[key] for key in ("model", "accelerator") if chance.random() < 0.7})
    found = bulk({"estimates": entries})
    for entry, each in zip(entries, found, strict=True):
        assert (each["estimate"], each["problem"]) == single(entry), entry
        if each["estimate"]:
            assert ClosedEstimate.read(each["estimate"]).to_json() == each["estimate"]
    assert len({each["problem"] is None for each in found}) == 2


def test_many_are_what_single_calls_return_whatever_is_asked() -> None:
    checked(1, 40)


TWINS: dict[str, list[Any]] = {
    "tp": [1, True, 1.0, "1", None],
    "isl": [1, True, 1.0, "1", None],
    "osl": [1, True, 1.0, "1", 0, None],
    "concurrency": [1, True, 1.0, "1", "max", None],
    "rate": [1, True, 1.0, "1", None],
    "seats": [1, True, 1.0, None],
    "use_measurements": [True, 1, 1.0, False, 0, "yes", None],
    "model": [LLAMA, f" {LLAMA}", "Llama-3.1-8B", LLAMA.upper(), "BAAI/bge-m3", "", "x" * 121, "a\tb", 1, None, {}],
    "accelerator": ["h100-sxm", "H100-SXM", "h100-sxm ", "mi300x", "l40s", "", "x" * 121, "a\x00b", True, None],
    "framework": ["vllm", "vLLM", " vllm", "sglang", "1", "", "x" * 121, 1, None],
    "weights": ["fp8", "FP8", "bf16", "8", None],
    "kv": ["fp8", "FP8", None],
    "kind": ["serving", "training", None, 1],
    "workload": [None, {}],
    "trace": [None, {}],
    "unknown": [1, None],
}  # fmt: skip


def test_entries_that_differ_in_one_value_share_nothing_that_depends_on_it() -> None:
    """All in one call, forwards and backwards, so that each is computed after every twin that could be kept for it."""
    entries = [CLOSED] + [{**CLOSED, key: value} for key, values in TWINS.items() for value in values]
    entries += [
        {key: value for key, value in CLOSED.items() if key != left_out} for left_out in CLOSED if left_out != "method"
    ]
    entries = entries + entries[::-1]
    wanted: dict[str, Any] = {}
    for estimator_is_new in (True, False):
        if estimator_is_new:
            closed_estimates.ESTIMATORS.clear()
        for entry, each in zip(entries, bulk({"estimates": entries}), strict=True):
            key = json.dumps(entry)
            wanted[key] = wanted.get(key) or single(entry)
            if in_closed_form(entry):
                assert (each["estimate"], each["problem"]) == wanted[key], entry


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 4))
def test_many_more_are_what_single_calls_return(seed: int) -> None:
    checked(seed, 100)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"concurrency": "max"},
        {"tp": 2, "dp": 2, "concurrency": 4000},
        {"rate": 5.0, "concurrency": "max"},
        {"client": "burst:3"},
        {"model": "BAAI/bge-m3", "weights": "bf16", "osl": 1, "isl": 500},
        {"model": "meta-llama/Llama-3.1-70B", "weights": "bf16"},
    ],
)
def test_it_has_the_figures_beside_a_simulation(change: dict[str, Any]) -> None:
    (closed, refused), (simulated, _) = single({**CLOSED, **change}), single({**BASE, **change})
    assert refused is None
    arrives = "rate" in change  # requests in flight then follow from the simulation
    same = [key for key in SHARED if key in simulated and not (arrives and key in ("memory", "concurrency"))]
    assert {key: closed.get(key) for key in same} == {key: simulated[key] for key in same}
    assert closed["fits"] == ("closed_form" in closed) and len(same) >= 5 - arrives


def test_axes_are_every_combination_of_their_values() -> None:
    found = bulk({"base": CLOSED, "axes": {"tp": [1, 2], "concurrency": [4, 8, 16]}})
    asked = [{**CLOSED, "tp": tp, "concurrency": users} for tp in (1, 2) for users in (4, 8, 16)]
    assert found == bulk({"estimates": asked})
    assert [each["estimate"]["tp"] for each in found] == [1, 1, 1, 2, 2, 2]


def test_ten_thousand_are_one_call_of_few_counts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    settings.ESTIMATES_PER_MINUTE = 60
    validated = []
    once = closed_estimates.Estimator.kind
    monkeypatch.setattr(closed_estimates.Estimator, "kind", lambda self, raw: validated.append(raw) or once(self, raw))
    closed_estimates.ESTIMATORS.clear()
    axes = {"tp": [1, 2], "isl": list(range(1000, 1050)), "concurrency": list(range(1, 101))}
    found = bulk({"base": CLOSED, "axes": axes})
    assert len(found) == 10_000 and not any(each["problem"] for each in found)
    assert len(validated) == 2  # kinds: the numbers of the others need no checks
    sample = random.Random(0).sample(found, 5)
    assert [each["estimate"] for each in sample] == [
        single({**CLOSED, "tp": e["tp"], "isl": int(e["isl"]), "concurrency": e["concurrency"]})[0]
        for e in (each["estimate"] for each in sample)
    ]
    simulated = post(MANY, {"base": BASE, "axes": {"concurrency": list(range(1, 1101))}})
    assert simulated.status_code == 422 and "1000 with method simulated" in simulated.json()["errors"][0]["message"]
    cache.clear()


def test_simulated_and_closed_entries_keep_their_order() -> None:
    found = bulk(
        {"base": BASE, "estimates": [{}, {"method": "closed_form"}, {"method": "guess"}, {"method": "simulated"}]}
    )
    assert [each["estimate"].get("method") if each["estimate"] else None for each in found] == [
        None, "closed_form", None, None,
    ]  # fmt: skip
    assert found[0]["estimate"] == found[3]["estimate"] and found[2]["problem"]["errors"][0]["field"] == "method"


@pytest.mark.parametrize("change", [{"users": {"active": 50, "think_s": 10}}, {"prefill_pool": {}, "decode_pool": {}}])
def test_what_has_no_formula_says_which_method_has_it(change: dict[str, Any]) -> None:
    _, problem = single({**CLOSED, "framework": "vllm"} | change)
    (error,) = problem["errors"]
    assert (problem["status"], error["field"], error["allowed"]) == (422, "method", "simulated")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*CLOSED, "axes", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(base=json_values, key=st.sampled_from(["estimates", "axes"]), value=json_values)
def test_no_body_is_an_internal_error(base: Any, key: str, value: Any) -> None:
    answer = post(MANY, json.dumps({"base": base, key: value, "method": "closed_form"}))
    assert answer.status_code in (200, 400, 422)
    changed = {**CLOSED, **base} if isinstance(base, dict) else CLOSED
    answer = post(MANY, json.dumps({"base": changed, "estimates": [{"isl": value}, {"model": value}, {"tp": value}]}))
    assert answer.status_code in (200, 400, 422)
    if answer.status_code == 200:
        assert all(
            (each["problem"] or {"status": 422})["status"] == 422 for each in json.loads(answer.getvalue())["results"]
        )


def test_the_command_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--{key}={value}" for key, value in CLOSED.items()]
    with pytest.raises(SystemExit) as ended:
        call_command("estimate", *arguments, "--format=json")
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == single(CLOSED)[0]
    with pytest.raises(SystemExit):
        call_command("estimate", *arguments)
    assert "by closed formulas, not simulated" in capsys.readouterr().out


def test_hostile_entries_leave_nothing_large_in_the_process() -> None:
    estimator = closed_estimates.Estimator()
    wrong = {**CLOSED, "sets": 1}
    found = list(estimator.results([wrong] * 30))
    kept = list(estimator.errors.values())
    assert all(str(each) == str(found[0]) for each in found) and len(kept) == 1
    assert kept[0].__traceback__ is None  # it would hold the frames of all calls, and with them their bodies
    list(estimator.results([{**CLOSED, "framework": f"{n}" + "x" * 100_000} for n in range(5)]))
    assert sum(len(key) for key, _ in estimator.errors) < closed_estimates.MOST_KEY_BYTES
    hosts = [{**CLOSED, "host_speed_ratio": 1 + n / 1000} for n in range(closed_estimates.HOSTS_KEPT + 5)]
    assert all(isinstance(each, dict) for each in estimator.results(hosts))
    assert len(estimator.calibrations) <= closed_estimates.HOSTS_KEPT
