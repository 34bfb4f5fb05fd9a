"""Nothing that a planner typed is ignored in silence: it is used, refused, or listed as not used."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import report, workload
from advisor.answer.question_notes import not_used
from advisor.inputs import EGRESS, STORAGE, catalog_of
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.prices.assumptions import COSTS
from advisor.inputs.to_engine import workload_of
from advisor.result import Answer
from advisor.workload.traces.files import with_traces
from tests import sample_advice
from tests.as_json import recommend
from tests.pages import every_section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"


def asked(*changes: str) -> dict[str, Any]:
    raw = workload.load(FILE.read_bytes())
    for change in ("constraints.accelerators.allow=[l40s]", *changes):
        raw = workload.set_path(raw, *change.split("=", 1))
    spec = workload.parse(raw)
    check_catalog(spec, files=True)
    return spec


def answer(*changes: str) -> dict[str, Any]:
    spec = asked(*changes)
    return recommend(spec, take_snapshot(spec))


def test_a_plain_question_is_used_whole() -> None:
    assert answer()["not_used"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("probe=required", "probe"),
        ("tco.cluster-utilisation-fraction=0.4", "tco.cluster-utilisation-fraction"),
    ],
)
def test_what_the_engine_leaves_out_is_listed_and_printed(change: str, field: str) -> None:
    found = not_used(asked(change), COSTS)
    assert [item.field for item in found] == [field]
    result = {**sample_advice.result(), "not_used": [item.to_json() for item in found]}
    assert f"not used: {field}: " in report.table(Answer.read(result))
    assert f"not used: {field}: " in report.markdown(Answer.read(result))


def test_an_assumption_that_is_said_not_to_count_changes_no_offer_and_no_assumption_of_the_engine() -> None:
    spec = asked("constraints.acquisition=[rent, own]")
    snapshot = take_snapshot(spec)
    listed = {item.field for item in not_used(spec | {"tco": dict.fromkeys(snapshot.assumptions, 1.0)}, COSTS)}
    services = (EGRESS, STORAGE)  # used by the provider's name
    unused = {
        key: 1.5 * row["value"] + 0.01
        for key, row in snapshot.assumptions.items()
        if f"tco.{key}" in listed and not key.startswith(services)
    }

    def engine(changes: dict[str, float]) -> tuple[Any, ...]:
        asks = spec | {"tco": spec["tco"] | changes}
        catalog = catalog_of(asks, snapshot)
        return catalog.assumptions, catalog.offers

    assert len(unused) > 10 and repr(engine(unused)) == repr(engine({}))
    assert repr(engine({"purchase-lead-months": 3.0})) != repr(engine({}))


def test_the_answer_and_its_page_say_what_was_not_used(client: Client) -> None:
    result = answer("tco.cluster-utilisation-fraction=0.4", "probe=required")
    assert [item["field"] for item in result["not_used"]] == ["probe", "tco.cluster-utilisation-fraction"]
    advice = sample_advice.advice(result=result)
    page = every_section(client, f"/advice/{advice.pk}")
    assert "Requested but not used" in page and "<code>probe</code>" in page


BEFORE: list[dict[str, Any]] = []


@pytest.mark.parametrize("change", ["tco.pue=1.9", "tco.operator-usd-per-year=900000", "tco.horizon_months=12"])
def test_a_changed_cost_is_used(change: str) -> None:
    own = ("constraints.accelerators.allow=[h100-sxm]", "constraints.acquisition=[own]", "variants=no")
    own += ("constraints.formats.allow=[fp8]", "constraints.frameworks.allow=[vllm]")
    before, after = BEFORE[0] if BEFORE else answer(*own), answer(*own, change)
    BEFORE[:] = [before]
    assert after["not_used"] == []
    first, second = (r["recommendations"][0] for r in (before, after))
    assert (first["usd_per_month"], first["tco_usd"], first["watts"]) != (
        second["usd_per_month"], second["tco_usd"], second["watts"],
    )  # fmt: skip


def test_the_power_of_the_site_is_a_limit_in_watts() -> None:
    spec = asked("constraints.site={max_kw: 20}")
    assert workload_of(spec).constraints.max_watts == 20_000
    assert workload_of(asked()).constraints.max_watts is None
    assert not_used(spec, COSTS) == []


def test_a_model_by_its_slug_is_the_model() -> None:
    by_slug = asked("model=meta-llama-llama-3-3-70b-instruct")
    assert take_snapshot(by_slug).model["hf_id"] == "meta-llama/Llama-3.3-70B-Instruct"


def test_a_model_by_the_contents_of_its_config() -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
              "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
              "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}  # fmt: skip
    result = answer(f"model={{config: {json.dumps(config)}}}")
    assert result["recommendations"] or result["rejected"]


def test_a_trace_gives_mean_and_p95(tmp_path: Path) -> None:
    rows = "\n".join(f"{n},{10 * n}" for n in range(1, 101))
    (tmp_path / "trace.csv").write_text(f"output_tokens,input_tokens\n{rows}\n")
    spec = asked("traffic.input_tokens={trace: trace.csv}", "traffic.output_tokens={trace: trace.csv}")
    traffic = with_traces(spec, tmp_path)["traffic"]
    assert traffic["input_tokens"] == {"trace": "trace.csv", "mean": 505.0, "p95": 950.0}
    assert traffic["output_tokens"] == {"trace": "trace.csv", "mean": 50.5, "p95": 95.0}


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b\n1,2\n", "no column"), ("input_tokens\n", "no rows"), ("input_tokens\n5\nx\n", "line 3"), (None, "read")],
)
def test_a_trace_that_cannot_be_used_names_its_field(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "trace.csv").write_text(text)
    spec = asked("traffic.input_tokens={trace: trace.csv}")
    with pytest.raises(workload.WorkloadError, match=words) as refused:
        with_traces(spec, tmp_path)
    assert refused.value.errors[0]["field"] == "traffic.input_tokens.trace"


def test_a_trace_is_read_beside_the_workload_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.yaml").write_bytes(FILE.read_bytes())
    (tmp_path / "trace.csv").write_text("input_tokens\n" + "\n".join(["1000"] * 20))
    changes = ["traffic.input_tokens={trace: trace.csv}", "constraints.accelerators.allow=[l40s]"]
    with pytest.raises(SystemExit):
        call_command("advise", str(tmp_path / "w.yaml"), "--format", "json", *(f"--set={c}" for c in changes))
    assert json.loads(capsys.readouterr().out)["workload"]["traffic"]["input_tokens"]["mean"] == 1000
