"""A running deployment against its plan and the prediction: by command and over REST."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor.answer import single_estimate
from advisor.deployments import Asked, Given, Plan, compare, compared, plan_of_answer, read_files
from advisor.deployments.resolve import acceptance
from advisor.workload.fixed.deployment import parse_deployment
from catalog.management.errors import BadInput
from catalog.models import Organisation
from tests import sample_advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SAMPLES = Path(__file__).parent / "samples"
LLAMA = "meta-llama/Llama-3.1-8B"
SCRAPE = Given("metrics", (SAMPLES / "vllm-new.prom").read_bytes(), 1.7638e9 + 360)
LOG = Given("log", (SAMPLES / "vllm.log").read_bytes().replace(b"'ngram'", b"'unknown'"))
ASKED: dict[str, Any] = {"model": LLAMA, "accelerator": "h100-sxm"}


def deployment(*given: Given, plan: Plan | None = None, **asked: Any) -> dict[str, Any]:
    return compared(read_files(given), Asked(plan=plan, **{**ASKED, **asked}))


def test_the_prediction_is_that_of_an_estimate_of_the_same_deployment_and_load() -> None:
    found = deployment(SCRAPE, LOG)
    arguments = {
        "model": LLAMA, "accelerator": "h100-sxm", "weights": "bf16", "framework": "vllm", "tp": 1, "pp": 1, "ep": 1,
        "framework_version": "0.11.0", "seats": 64, "max_batched_tokens": 4096, "memory_fraction": 0.92,
        "prefix_caching": True, "enforce_eager": False,
    }  # fmt: skip
    assert found["estimate"] == arguments
    traffic = {"isl": 1000, "isl_p95": 3500, "osl": 200, "osl_p95": 350, "rate": 10.0, "prefix_cache_hit_rate": 0.1}
    wanted = single_estimate.answer(parse_deployment(arguments | traffic | {"dp": 1}))
    assert wanted.tpot_ms is not None and wanted.tpot_ms.mean is not None
    rows = {row["metric"]: row for row in found["rows"]}
    assert rows["TPOT mean"]["predicted"] == pytest.approx(wanted.tpot_ms.mean, rel=1e-4)
    assert rows["KV cache of a server"]["measured"] == [437_600, 437_600]  # of the metrics, as the server runs now
    assert rows["weights per accelerator"]["error_fraction"] == pytest.approx(0, abs=0.03)
    assert rows["TTFT p95"]["measured"] == [60, 100]
    assert found["correction"]["time_ratio"] == pytest.approx(9.5 / wanted.tpot_ms.mean, rel=1e-3)
    assert not found["correction"]["usable"] and "result file" in found["correction"]["why_not"][0]
    assert any("unknown" in note for note in found["notes"])  # the drafts
    assert found["conflicts"] == ["memory_fraction: log says 0.92, metrics says 0.9"]


def test_limits_are_judged_by_the_bounds_of_a_bucket() -> None:
    slo = {"ttft_ms_p95": 100, "tpot_ms_p95": 20, "e2e_ms_p95": 2000}
    found = deployment(SCRAPE, plan=Plan(said="limits", slo=slo))
    assert [(each["limit"], each["kept"]) for each in found["limits"]] == [
        ("ttft_ms_p95", True), ("tpot_ms_p95", None), ("e2e_ms_p95", False),
    ]  # fmt: skip
    said = " ".join(found["answer"])
    assert "keeps the p95 TTFT limit" in said and "may miss the p95 TPOT" in said and "misses the p95 E2E" in said


def test_a_full_server_has_no_spare_capacity() -> None:
    scrape = Given("s", (SAMPLES / "sglang.prom").read_bytes())
    said = deployment(scrape)["answer"]
    assert "Its KV cache is 96% full." in said
    assert "It has no spare capacity: 14 requests wait while 9 run." in said


def test_what_nobody_says_is_asked_for() -> None:
    found = deployment(SCRAPE, accelerator="")
    assert found["not_predicted"] == "the files do not say the accelerator (not stated; give --accelerator)"
    assert found["rows"] == [] and found["seen"]["requests_per_s"] == 10
    assert "give --model" in deployment(SCRAPE, model="no/such-model")["not_predicted"]


def test_acceptance_of_each_draft_follows_from_accepted_tokens() -> None:
    assert acceptance(0.5 + 0.25 + 0.125, 3) == pytest.approx(0.5, abs=1e-6)
    assert acceptance(0.0, 3) == 0


def manifest(option: Any, **changes: str) -> str:
    """A deployment as an option plans it, with other values of some flags."""
    command = option["launch"]["command"]
    for flag, value in changes.items():
        name = f"--{flag.replace('_', '-')}"
        words = command.split()
        words[words.index(name) + 1] = value
        command = " ".join(words)
    return command


@pytest.fixture
def option() -> Any:
    return sample_advice.advice().options.first()


def test_a_deployment_as_planned_has_no_difference_and_another_says_its_effect(option: Any) -> None:
    spec = option.advice.workload.spec
    answer = {"workload": spec, "recommendations": [option.detail | {"rank": 1}]}
    plan = plan_of_answer(answer)
    same = compared(read_files([Given("run.sh", manifest(option.detail).encode())]), Asked(plan=plan))
    assert [d["setting"] for d in same["differences"]] == []
    assert same["answer"][0] == "It runs as planned, as far as the files say."
    fewer = manifest(option.detail, max_num_seqs="2")
    other = compared(read_files([Given("run.sh", fewer.encode())]), Asked(plan=plan))
    (difference,) = other["differences"]
    assert difference["setting"] == "max-num-seqs" and difference["deployed"] == 2
    assert difference["planned"] > 2 and difference["effect"]
    assert other["load"].startswith("the load of the plan") and other["answer"][0].endswith("max-num-seqs.")


@pytest.mark.parametrize("answer", [{}, [], {"recommendations": [1]}, {"recommendations": [{"rank": 1}]}, None])
def test_a_plan_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="recommendations|option 1"):
        plan_of_answer(answer)


# --- the command ----------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    call_command("compare_deployment", *words)
    return capsys.readouterr().out


def test_the_command_prints_tables_json_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(SAMPLES / "vllm.log"), "--model", LLAMA, "--accelerator", "h100-sxm"]
    found = json.loads(run(capsys, *words, "--format", "json"))["deployments"]
    assert [row["metric"] for row in found[0]["rows"]] == ["KV cache of a server", "weights per accelerator"]
    text = run(capsys, *words)
    assert "Measured against predicted:" in text and "llama-8b" in text
    assert "| weights per accelerator | 14.99 |" in run(capsys, *words, "--format", "markdown")


def test_an_address_is_read_within_bounds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Answer:
        status_code = 200

        def __enter__(self) -> "Answer":
            return self

        def __exit__(self, *args: object) -> None: ...

        def iter_content(self, size: int) -> list[bytes]:
            return [SCRAPE.content]

    def get(url: str, **options: Any) -> Answer:
        asked.append((url, options))
        return Answer()

    monkeypatch.setattr(
        "advisor.management.commands.compare_deployment.requests", SimpleNamespace(get=get, RequestException=OSError)
    )
    monkeypatch.setattr("advisor.management.commands.compare_deployment.MOST_SCRAPE_BYTES", len(SCRAPE.content))
    words = ["http://server:8000/metrics", "--model", LLAMA, "--accelerator", "h100-sxm", "--window", "360"]
    assert "10 requests/s on 1 replica" in run(capsys, *words)
    assert asked == [("http://server:8000/metrics", {"timeout": 10, "stream": True, "allow_redirects": False})]
    monkeypatch.setattr("advisor.management.commands.compare_deployment.MOST_SCRAPE_BYTES", 1000)
    with pytest.raises(BadInput, match="sends more than"):
        run(capsys, *words)


# --- REST -----------------------------------------------------------------------------------------------------------

URL = "/api/v1/deployments/compare"


def post(body: Any) -> Any:
    return Client().post(URL, body, content_type="application/json")


def test_rest_gives_the_same_comparison() -> None:
    files = [
        {"name": "metrics", "text": SCRAPE.content.decode(), "at_s": SCRAPE.at_s},
        {"name": "log", "text": LOG.content.decode()},
    ]
    answer = post({"files": files, **ASKED})
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"deployments": [json.loads(json.dumps(deployment(SCRAPE, LOG)))]}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "files"),
        ({"files": []}, 400, "files"),
        ({"files": [{"name": "a", "text": "hello"}]}, 422, "a is none of these"),
        ({"files": [{"name": "a", "text": "hello", "url": "http://x"}]}, 400, "Unknown key"),
        ({"files": [{"name": "a", "text": "vllm serve a/b"}], "window_s": 0}, 400, "window_s"),
        ({"files": [{"name": "a", "text": "vllm serve a/b"}], "workload": {"kind": "x"}}, 422, "kind"),
        ({"files": [{"name": "a", "text": "\n".join(f"vllm serve a/b{i}" for i in range(9))}]}, 422, "at most 3"),
    ],
)
def test_rest_refuses_with_the_key(body: Any, status: int, said: str) -> None:
    answer = post(body)
    assert answer.status_code == status and said in answer.content.decode(), answer.content


def test_a_plan_of_another_organization_is_not_found(option: Any) -> None:
    other = Organisation.objects.create(slug="other", name="Other")
    body = {"files": [{"name": "run.sh", "text": manifest(option.detail)}], "advice": str(option.advice_id)}
    found = post(body)
    assert found.status_code == 200 and found.json()["deployments"][0]["differences"] == []
    type(option.advice).objects.filter(pk=option.advice_id).update(organisation=other)
    assert post(body).status_code == 404


@pytest.mark.parametrize(("value", "said"), [(0.5, "0.5"), (99.63, "99.6"), (999.6, "1,000"), (12190.0, "12,190")])
def test_figures_in_sentences_have_no_exponent(value: float, said: str) -> None:
    assert compare._figure(value) == said
