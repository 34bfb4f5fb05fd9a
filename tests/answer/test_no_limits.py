"""A serving question without latency limits: the verdict says so, with the latencies and what usual limits change."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from advisor import workload
from advisor.inputs.from_catalog import take_snapshot
from tests import sample_advice
from tests.as_json import recommend
from tests.pages import every_section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILES = Path(__file__).resolve().parents[2] / "fixtures" / "workloads"


def asked(name: str, **changes: Any) -> dict[str, Any]:
    raw = workload.load((FILES / f"{name}.yaml").read_bytes())
    for path, value in changes.items():
        raw = workload.set_path(raw, path.replace("__", "."), value)
    spec = workload.parse(raw)
    return recommend(spec, take_snapshot(spec))


def test_a_chat_without_limits_says_so_and_what_usual_limits_would_change(client: Client) -> None:
    found = asked("support-chat", slo="{}", constraints__accelerators__allow="[l40s, h100-sxm]")
    open_limits, first = found["no_limits"], found["recommendations"][0]
    assert open_limits["said"] in found["verdict"] and "meets every limit" not in found["verdict"]
    for figure in (f"{first['ttft_ms']['p95']:,.0f} ms", f"{first['tpot_ms']['p95']:,.0f} ms", "TTFT 2 s, TPOT 40 ms"):
        assert figure in open_limits["said"]
    assert open_limits["label"] and open_limits["usd_per_month"] >= first["usd_per_month"]
    limited = asked(
        "support-chat", slo="{ttft_ms_p95: 2000, tpot_ms_p95: 40}", constraints__accelerators__allow="[l40s, h100-sxm]"
    )["recommendations"][0]
    assert limited["label"].startswith(open_limits["label"])  # what an answer to the question with them says
    assert open_limits["usd_per_month"] == limited["usd_per_month"]
    assert open_limits["said"] in every_section(client, f"/advice/{sample_advice.advice(found).pk}")


def test_a_first_choice_within_the_usual_limits_stays_first() -> None:
    found = asked(
        "support-chat", slo="{}", constraints__accelerators__allow="[b200]", constraints__acquisition="[rent]",
        traffic__requests_per_s="{mean: 0.2, peak: 0.3}",
    )  # fmt: skip
    open_limits, first = found["no_limits"], found["recommendations"][0]
    assert first["ttft_ms"]["p95"] <= 2000 and first["tpot_ms"]["p95"] <= 40
    assert (open_limits["label"], open_limits["usd_per_month"]) == (first["label"], first["usd_per_month"])
    assert "It meets the limits of the MLPerf chat scenarios (TTFT 2 s, TPOT 40 ms)" in open_limits["said"]


def test_without_work_left_it_makes_no_claim_and_is_named_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.answer.question_notes.CHOICE_FRACTION", 1.0)
    found = asked("support-chat", slo="{}", constraints__accelerators__allow="[h100-sxm]")
    assert (found["no_limits"]["label"], found["no_limits"]["usd_per_month"]) == (None, None)
    assert "MLPerf" not in found["no_limits"]["said"]
    assert "what usual latency limits would change" in found["candidates"]["not_examined"]


@pytest.mark.parametrize("limit", ["{tpot_ms_p95: 100}", "{ttft_ms_p95: 3000}", "{e2e_ms_p95: 60000}"])
def test_one_limit_is_enough(limit: str) -> None:
    found = asked("support-chat", slo=limit, constraints__accelerators__allow="[h100-sxm]")
    assert found.get("no_limits") is None and "no latency limits" not in found["verdict"]


def test_an_embedding_without_a_limit_names_its_latency() -> None:
    found = asked("embedding", slo="{}", constraints__accelerators__allow="[l4]")
    first = found["recommendations"][0]
    assert f"a p95 latency of {first['ttft_ms']['p95']:,.0f} ms" in found["no_limits"]["said"]


def test_a_batch_has_a_deadline_instead() -> None:
    found = asked("nightly-batch", constraints__accelerators__allow="[h100-sxm]")
    assert found.get("no_limits") is None
