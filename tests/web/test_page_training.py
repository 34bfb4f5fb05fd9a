"""The pages of a training answer: its figures, its pictures, and no word about serving."""

import copy
import csv
import io
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from advisor import report
from advisor.models import Advice, Share
from advisor.report import distinct
from advisor.result import Answer, TrainingOption, shown_in
from tests import sample_training
from tests.pages import every_section
from tests.sample_training import advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
NAMES = ("pretrain", "weekly", "bought", "budget")
SERVING = (
    "TTFT",
    "TPOT",
    "SLO",
    "KV cache",
    "requests/s",
    "traffic",
    "hosted API",
    "replica",
    "output token",
    "deployment",
)


ASKED = {
    "pretrain": "pre-training on 100 billion tokens",
    "weekly": "LoRA fine-tuning (rank 16) on 50 million tokens",
    "bought": "again every 15 days",
    "budget": "pre-training with a budget of $20,000 · sequences of 8,192 tokens · 4 million tokens per step · "
    "objective fewest days",
    "late": "within 3 days",
}


def text_of(client: Client, path: str, code: bool = True) -> str:
    """What a reader sees, without the text of rejections, which quotes the catalog."""
    pages = re.findall('<main id="content"(.*?)<footer', every_section(client, path), flags=re.S)
    page = "\n".join(pages)
    page = re.sub(r'<section aria-labelledby="(why|grounds)-title".*?</section>', "", page, flags=re.S)
    page = re.sub(r' title="[^"]*"', "", page)
    page = page if code else re.sub(r"<pre.*?</pre>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", unescape(strip_tags(page)).replace("\u00a0", " "))


def runs(name: str) -> list[TrainingOption]:
    return Answer.read(sample_training.result(name)).training_runs


MEASURED = {
    "id": "megatron_bridge-1", "accelerator": "h100-sxm", "accelerator_count": 64,
    "model": "meta-llama/Meta-Llama-3-70B",
    "framework": "Megatron-Bridge", "framework_version": "", "method": "full", "precision": "fp8",
    "layout": "tp4 pp8 v5 dp2", "sequence_length": 8192, "global_batch": 256, "distance": 2.25, "near": True,
    "metric": "tokens_per_s_per_accelerator", "measured": 1660.0, "predicted": 1598.0, "error_fraction": 0.0373,
    "source": "Megatron-Bridge performance summary", "url": "/fidelity?id=megatron_bridge-1",
}  # fmt: skip


@pytest.mark.parametrize(("near", "warned"), [(True, False), (False, True)])
def test_an_option_is_shown_beside_the_measured_runs_that_are_most_like_it(
    client: Client, near: bool, warned: bool
) -> None:
    answer = copy.deepcopy(sample_training.result("pretrain"))
    answer["recommendations"][0]["evidence"] = [MEASURED | {"near": near}]
    text = text_of(client, f"/advice/{advice('pretrain', answer).pk}/options/1")
    for said in ("64 × h100-sxm, meta-llama/Meta-Llama-3-70B", "tp4 pp8 v5 dp2", "256 per step", "2.25", "3.73%"):
        assert said in text
    assert "tokens/s per accelerator" in text and "Megatron-Bridge performance summary" in text
    assert ("No similar run was measured" in text) is warned


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_cost_time_and_efficiency_of_every_run(client: Client, name: str) -> None:
    text = text_of(client, f"/advice/{advice(name).pk}")
    for run in distinct(runs(name)):
        assert run.label in text
        for figure in (run.usd_per_run, *run.usd_per_run_range):
            assert (f"${figure:,.0f}" if figure >= 100 else f"${figure:,.2f}") in text
        assert f"{run.mfu:.1%}" in text
    assert sample_training.result(name)["verdict"] in text


def test_the_page_of_one_run_says_what_its_time_is_made_of(client: Client) -> None:
    text = text_of(client, f"/advice/{advice('pretrain').pk}")
    first = runs("pretrain")[0]
    for said in (
        "for the run", "90% range", "Cost vs. time", "deadline 30 days", "misses the deadline",
        "gradients", "optimizer states", "activations", "Forward pass", "Waiting for the slowest rank",
        f"Goodput: {first.goodput_fraction:.1%} of the time trains", first.scaling_said, "✓ this option",
        "What drives the cost", "Present value of the cost of the run", "Layouts timed",
    ):  # fmt: skip
        assert said in text or said in every_section(client, f"/advice/{advice('pretrain').pk}"), said
    assert "per month" not in text.replace("per month. Plans", "")


@pytest.mark.parametrize("name", NAMES)
def test_no_page_of_a_run_speaks_of_serving(client: Client, name: str) -> None:
    made = advice(name)
    for path in (f"/advice/{made.pk}", *(f"/advice/{made.pk}/options/{run.rank}" for run in runs(name))):
        text = text_of(client, path, code=False)
        assert [word for word in SERVING if re.search(rf"\b{word}s?\b", text, re.IGNORECASE)] == [], path


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_an_option_shows_layout_memory_goodput_plan_and_costs(client: Client, name: str) -> None:
    made = advice(name)
    for run in runs(name):
        text = text_of(client, f"/advice/{made.pk}/options/{run.rank}")
        for said in (
            f"{run.accelerator_count:,} × {run.accelerator_name}", f"{run.global_batch_tokens:,} tokens",
            f"{run.dp:,} ranks", run.storage.said, "Trained tokens", "Cost breakdown", "Every operator",
            "The same run from other sellers", "Present value of costs", "Key figures",
        ):  # fmt: skip
            assert said in text, said
        assert "USD per month" not in text or run.every_days
        assert "Launch" not in text or run.launch.command or run.launch.files


def test_a_team_reads_what_serving_elsewhere_takes(client: Client) -> None:
    text = text_of(client, f"/advice/{advice('pretrain').pk}/options/1")
    assert "Serving the trained model on other software stacks" in text and "ROCm" in text


def test_bought_machines_show_resale_taxes_and_payback(client: Client) -> None:
    text = text_of(client, f"/advice/{advice('bought').pk}/options/1")
    for said in ("Purchases (capex)", "Resale", "Income tax", "Cost of one run", "Cost of all runs in 24 months"):
        assert said in text, said


def test_a_budget_is_what_the_first_choice_costs(client: Client) -> None:
    assert 0.99 * 20_000 <= runs("budget")[0].usd_per_run <= 20_000
    assert "A budget of $20,000 trains this model on" in text_of(client, f"/advice/{advice('budget').pk}")


def test_runs_are_sorted_by_any_column(client: Client) -> None:
    made = advice("pretrain")
    for figure in shown_in("sort", "weights"):
        name = figure.sort
        page = client.get(f"/advice/{made.pk}?sort=-{name}").content.decode()
        body = page.split("Ranked runs")[1].split("</table>")[0]
        order = sorted(distinct(runs("pretrain")), key=lambda run: body.index(f'options/{run.rank}"'))
        values = [run.figure(figure.path) for run in order]
        assert values == sorted(values, reverse=True), name
        assert 'aria-sort="descending"' in body


def test_when_no_run_is_possible_the_page_says_what_comes_closest(client: Client) -> None:
    text = text_of(client, f"/advice/{advice('late').pk}")
    assert "Nothing meets this: the nearest is " in text and "the limit is 3 days" in text
    assert "Allow more days or accelerators" in text and "Why nothing fits" in text


@pytest.mark.parametrize("name", [*NAMES, "late"])
def test_the_list_names_the_run_and_its_cost(client: Client, name: str) -> None:
    advice(name)
    text = text_of(client, "/advice")
    for run in runs(name)[:1]:
        assert run.label in text and "per run" in text
    assert ASKED[name] in text


@pytest.mark.parametrize("name", [*NAMES, "late"])
def test_a_shared_link_shows_the_same_without_controls(client: Client, name: str) -> None:
    made = advice(name)
    token = Share.objects.create(organisation=made.organisation, advice=made, expires_at="2099-01-01T00:00Z").token
    text = client.get(f"/s/{token}").text
    assert text.count("<form") == text.count('<form class="reader"') == 1  # language and currency
    for run in runs(name):
        assert run.label in text_of(client, f"/s/{token}/options/{run.rank}")


@pytest.mark.parametrize("name", [*NAMES, "late"])
def test_exports_hold_every_run(client: Client, name: str) -> None:
    made = advice(name)
    rows = list(csv.DictReader(io.StringIO(client.get(reverse("advice-csv", args=[made.pk])).content.decode())))
    assert [float(row["usd_per_run"]) for row in rows] == [run.usd_per_run for run in runs(name)]
    assert all(row["days"] and row["mfu"] and row["zero"] for row in rows)
    assert (
        client.get(reverse("advice-json", args=[made.pk])).json()["recommendations"] == made.result["recommendations"]
    )
    assert (
        sample_training.result(name)["verdict"][:40]
        in client.get(reverse("advice-markdown", args=[made.pk])).content.decode()
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_document_of_every_run_can_be_opened(client: Client, name: str) -> None:
    made = advice(name)
    for document in report.DOCUMENTS.keys() - report.EXPORTS.keys():
        for run in runs(name):
            response = client.get(f"/advice/{made.pk}/documents/{document}?rank={run.rank}")
            assert response.status_code == 200, (document, run.rank)


def test_a_run_has_no_load_test(client: Client) -> None:
    made = advice("pretrain")
    assert client.get(f"/api/v1/advice/{made.pk}/options/1/load-tests").status_code == 404


def without(name: str, *keys: str) -> dict[str, Any]:
    answer: dict[str, Any] = dict(sample_training.result(name))
    answer["recommendations"] = [
        {key: value for key, value in run.items() if key not in keys} for run in answer["recommendations"]
    ]
    return answer


@pytest.mark.parametrize("missing", ["money", "interval", "step", "beats", "serve_elsewhere", "optimization"])
def test_an_answer_without_a_part_shows_the_rest(client: Client, missing: str) -> None:
    made = advice("pretrain", without("pretrain", missing))
    label = runs("pretrain")[0].label
    assert label in text_of(client, f"/advice/{made.pk}")
    assert label in text_of(client, f"/advice/{made.pk}/options/1")


def test_launch_files_and_an_optimization_plan_are_shown_once_they_exist(client: Client) -> None:
    answer = without("pretrain")
    answer["recommendations"][0] |= {
        "launch": {"command": "torchrun train.py", "files": {"job.yaml": "kind: JobSet"}},
        "optimization": [
            {"name": "FP8", "said": "matrix multiplies in FP8", "step_s": 9.0, "tokens_per_s": 466033.8,
             "peak_gib": 120.0, "gain_ratio": 1.31},
        ],
        "optimization_notes": ["watch the loss for spikes (https://example.org/fp8)"],
    }  # fmt: skip
    made = advice("pretrain", answer)
    text = text_of(client, f"/advice/{made.pk}/options/1")
    for said in ("torchrun train.py", "job.yaml", "kind: JobSet", "Optimization plan", "×1.31", "watch the loss"):
        assert said in text, said
    assert "torchrun train.py" in text_of(client, f"/advice/{made.pk}")


def test_a_run_can_be_asked_again(client: Client) -> None:
    made = advice("pretrain")
    response = client.post(reverse("advice-rescore", args=[made.pk]))
    assert response.status_code == 302
    assert Advice.objects.exclude(pk=made.pk).get().workload.spec["kind"] == "training"
    assert 'value="100B"' in client.get(f"/?from={made.pk}").content.decode()
