"""Each accelerator, framework and format left out says why, and the change that is told makes it pass when applied."""

import re

import pytest
import yaml

from advisor.engine.search import Question, Scored, prepare_question, search
from advisor.inputs import catalog_of, workload_of
from advisor.inputs.from_catalog import take_snapshot
from advisor.workload.schema import parse
from catalog.models import Accelerator, Framework, QuantizationMethod
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ["h100-sxm", "mi300x", "l4", "a10g", "l40", "rtx-a6000", "rtx-6000-ada"]
QUESTION = """
name: why-not
model: meta-llama/Llama-3.3-70B-Instruct
traffic:
  input_tokens: {mean: 2000, p95: 6000}
  output_tokens: {mean: 300, p95: 800}
  requests_per_s: {mean: 4, peak: 12}
slo: {ttft_ms_p95: 1000, tpot_ms_p95: 40}
"""


def asked(**constraints):
    return {**yaml.safe_load(QUESTION), "constraints": {"accelerators": {"allow": CHIPS}, **constraints}}


def answer(raw):
    spec = parse(raw)
    return recommend(spec, take_snapshot(spec))


def ranked(raw):
    """The options alone, without the explanations."""
    spec = parse(raw)
    return search(
        prepare_question(Question(workload_of(spec), catalog_of(spec, take_snapshot(spec)))), choice_alone=True
    ).ranked


def changed(raw, change, **constraints):
    """The question with every path of the change set, asked of one thing alone."""
    raw = yaml.safe_load(yaml.safe_dump(raw))
    for path, value in {**change, **{f"constraints.{k}": v for k, v in constraints.items()}}.items():
        *parents, last = path.split(".")
        place = raw
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return raw


@pytest.fixture(scope="module")
def result(django_db_setup, django_db_blocker, frozen):
    with django_db_blocker.unblock():
        return answer(asked())


def test_nothing_of_the_catalog_is_left_unsaid(result):
    shown = result["recommendations"]
    told = {r["accelerator"] for r in (*shown, *result["rejected"])}
    assert told == set(Accelerator.objects.values_list("slug", flat=True))
    serving = {f.slug for f in Framework.objects.all() if f.settings.get("role", "serving") == "serving"}
    assert {r["name"] for r in result["left_out"]["frameworks"]} == serving - {r["framework"] for r in shown}
    weights = {q.slug for q in QuantizationMethod.objects.all() if q.settings.get("applies_to", "weights") == "weights"}
    assert {r["name"] for r in result["left_out"]["formats"]} == weights - {r["quantization"] for r in shown}
    assert all(r["detail"] for kind in result["left_out"].values() for r in kind)
    slow = [r["detail"] for r in result["rejected"] if r["reason"] == "misses_slo"]
    assert slow and all(re.search(r"; [0-9,]+ chips at [$][0-9,]+ a month[)]", said) for said in slow)


def test_the_change_told_makes_an_accelerator_pass(result):
    tried = [r for r in result["rejected"] if r["change"] and r["reason"] in ("misses_slo", "does_not_fit")]
    assert tried and {r["reason"] for r in tried} <= {"misses_slo", "does_not_fit"}
    for r in tried:
        after = ranked(changed(asked(), r["change"], accelerators={"allow": [r["accelerator"]]}))
        assert [s.lane.choice.accelerator.slug for s in after[:1]] == [r["accelerator"]], r["smallest_change"]


def slug_of(s: Scored, kind: str) -> str:
    return s.lane.framework.slug if kind == "frameworks" else s.lane.choice.quantization.slug


@pytest.mark.parametrize(
    ("kind", "every"), [("frameworks", 1), ("formats", 3), pytest.param("formats", 1, marks=pytest.mark.soak)]
)
def test_the_change_told_makes_a_framework_or_a_format_pass(result, kind: str, every: int):
    tried = [r for r in result["left_out"][kind] if r["smallest_change"].startswith(("ranked", "passes"))][::every]
    assert tried
    for r in tried:
        after = ranked(changed(asked(), r["change"], **{kind: {"allow": [r["name"]]}}))
        assert {slug_of(s, kind) for s in after} == {r["name"]}, r["smallest_change"]


def test_a_name_that_is_no_framework_is_refused_with_its_nearest():
    from advisor.inputs.check import check_catalog
    from advisor.workload.text import WorkloadError

    with pytest.raises(WorkloadError) as refused:
        check_catalog(parse(asked(frameworks={"allow": ["vlm"]}, formats={"deny": ["fp9"]})))
    assert {e["field"] for e in refused.value.errors} == {"constraints.frameworks.allow", "constraints.formats.deny"}
