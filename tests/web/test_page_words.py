"""What the answer's page says of itself: who won what, in which order, what was left out, and what is cheaper still."""

import re

import pytest
from django.test import Client

from advisor.answer import mix
from advisor.answer.sentences import bracketed, provenance
from advisor.report import rejected_counts
from advisor.report.documents.bill import rent_of_one
from advisor.result import Answer, LengthClass, Mix, MixPart, Option, TuningPlan
from advisor.templatetags.units import percent_beside, sentence
from advisor.web.charts import plots as charts
from advisor.web.interactive import chart_data
from tests import sample_advice, sample_money


def sample() -> Answer:
    return Answer.read(sample_advice.result())


def test_what_was_left_out_reads_behind_a_number() -> None:
    first = sample().rejected[0]
    reasons = ("misses_slo", "misses_slo", "of_a_kind_yet_unknown")
    assert rejected_counts([first.changed(reason=reason) for reason in reasons]) == [
        ("too slow", 2),
        ("of a kind yet unknown", 1),
    ]


@pytest.mark.django_db
def test_users_who_wait_are_not_told_as_requests(client: Client) -> None:
    answer = sample_advice.result()
    answer["workload"]["traffic"] |= {"users": {"active": 20.0, "think_s": 30.0}}
    head = client.get(f"/advice/{sample_advice.advice(answer).pk}").content.decode().split("</header>")[1]
    assert "20 users at a time" in head and "requests/s" not in head


@pytest.mark.django_db
def test_two_questions_of_one_name_are_told_apart_in_the_list(client: Client) -> None:
    first, second = sample_advice.advice(), sample_advice.advice()
    second.workload.spec["slo"] |= {"tpot_ms_p95": 25}
    second.workload.spec["adapters"] = {"count": 50, "rank": 16}
    second.workload.save()
    text = client.get("/advice").content.decode()
    assert text.count(">support-chat</a>") == 2 and first.pk != second.pk
    assert text.count("TPOT p95 ≤ 40 ms") == text.count("TPOT p95 ≤ 25 ms · 50 LoRA adapters") == 1


def test_neighbouring_lengths_are_one_span() -> None:
    classes = [
        {"from": 622.0, "below": 1545.0, "share_of_requests": 0.25, "share_here": 1.0},
        {"from": 1545.0, "below": None, "share_of_requests": 0.25, "share_here": 1.0},
    ]
    part = MixPart.model_construct(input_tokens=[LengthClass.read(each) for each in classes])
    assert mix.prompt_lengths(part) == "all from 622 input tokens"
    (span,) = part.length_ranges()
    assert span.to_json() == {"from": 622.0, "below": None, "share_of_requests": 0.5, "share_here": 1.0}
    classes[1]["share_here"] = 0.5
    part = MixPart.model_construct(input_tokens=[LengthClass.read(each) for each in classes])
    assert mix.prompt_lengths(part) == "all from 622 to 1,545, 50% of those from 1,545 input tokens"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("a mix is not sought under a recorded trace", "Mixes are not sought under a recorded trace."),
        ("no combination is cheaper", "No mix of machines is cheaper: no combination is cheaper."),
    ],
)
def test_a_mix_that_was_not_sought_is_not_called_dearer(reason: str, said: str) -> None:
    plan = Mix.model_construct(cheaper=False, reason=reason, single_usd_per_month=1.0)
    assert mix.sentence(None, plan) == said  # type: ignore[arg-type]


def test_a_range_says_both_of_its_ends_inside_the_picture() -> None:
    ends = (("performance of a chip with a name that is long", 4307.0, 10770.0), ("output length", 6461.0, 6461.0))
    first = sample().sensitivity[0]
    svg = chart_data.sensitivity(
        [first.changed(assumption=a, usd_per_month_low=low, usd_per_month_high=high) for a, low, high in ends]
    ).svg
    assert "$4,307 to $10,770" in svg and "stays $6,461" in svg and "…" not in svg
    starts = [float(x) for x in re.findall(r'<text[^>]* x="([0-9.]+)"[^>]*>[a-z ]*[$]', svg)]
    assert len(starts) == 2 and max(starts) + 7.2 * len("$4,307 to $10,770") < charts.BARS_WIDTH


def test_a_long_technique_keeps_all_of_its_name() -> None:
    steps = [
        {"name": "Naive", "state": "base", "gain_ratio": None, "change": "", "because": ""},
        {"name": "CUDA graphs (or compiled programs): a step is launched at once", "state": "used", "gain_ratio": 2.0,
         "change": "graphs on", "because": ""},
        {"name": "Narrower weights", "state": "possible", "gain_ratio": 1.5, "change": "MXFP4",
         "because": "outside the asked quality (near_lossless)"},
    ]  # fmt: skip
    rates = (10.0, 20.0, 30.0)
    texts = dict.fromkeys(("technique", "effort", "risk", "needs", "source"), "")
    unknown = dict.fromkeys(("tpot_ms", "ttft_ms", "concurrency"))
    drawn = [
        {**texts, **unknown, **s, "output_tokens_per_s_per_accelerator": r} for s, r in zip(steps, rates, strict=True)
    ]
    svg = chart_data.techniques(TuningPlan.read({"gain_ratio": 3.0, "steps": drawn})).svg
    assert "launched at once<" in svg and "Narrower weights: MXFP4<" in svg and "…" not in svg


def test_names_of_hosts_and_sellers_in_a_sentence() -> None:
    option = sample().recommendations[0]
    assert provenance(option.changed(provider="own", acquisition="own")) == "bought"
    assert provenance(option.changed(provider="owned", acquisition="own")) == "already owned"
    assert provenance(option.changed(provider="a-seller", acquisition="rent")) == "rented from a-seller"
    assert [bracketed(name) for name in ("2 x L4 in an own host", "a server")] == [
        "(2 x L4 in an own host)",
        "a server",
    ]
    assert [sentence(text) for text in ("vLLM takes it", "a replica", "")] == ["vLLM takes it", "A replica", ""]


def test_a_target_missed_by_little_is_seen_to_be_missed() -> None:
    assert percent_beside(0.15021, 0.15) == "15.02%" and percent_beside(0.150004, 0.15) == "15.0004%"
    assert percent_beside(0.13, 0.15) == "13.0%" == percent_beside(0.13, None)


def test_a_unit_price_has_no_digits_of_a_float() -> None:
    assert 8.85 / 3 != 2.95  # what a spreadsheet would have shown
    option = sample_money.result()["recommendations"][0] | {"instances": 3}
    option["money"]["parts"][0]["usd_per_hour"] = 8.85
    assert rent_of_one(Option.read(option)) == 2.95
