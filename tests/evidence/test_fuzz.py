"""Whatever a file has, it is refused with a reason, or each of its figures is accounted for."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor import evidence
from advisor.evidence import EvidenceError, Source
from catalog.models import EvidenceRow
from tests import measured_samples
from tests.evidence import samples

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ODD = st.sampled_from(
    [
        *("", "0", "-1", "1", "8", "1e9", "1e308", "nan", "inf", "٣", "0x10"),
        *("qps=2", "qps=INF", "offline", "tp=2;ep=x", "é\x00"),
    ]
)
WORDS = ODD | st.text(max_size=12)
CELLS = st.dictionaries(st.sampled_from([name for name in measured_samples.COLUMNS if name != "id"]), WORDS, max_size=4)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.just([1]), st.just({}))
RECORDS = [
    samples.inferencex(), samples.inferencex_artifact(), samples.vllm(), samples.sglang(), samples.llama_bench(),
    samples.guidellm({"type_": "concurrent", "streams": 16})["benchmarks"][0], samples.aiperf(),
]  # fmt: skip
OPTIONS = {"accelerator": "h200-sxm", "n_accelerators": "1", "framework": "vllm 0.19.0", "model": samples.MODEL}
FUZZED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def imported(path: Path, options: dict[str, str]) -> None:
    before = EvidenceRow.objects.count()
    try:
        done = evidence.add(path, "", {"lab": Source(key="lab")}, "lab", options, "fuzz")
    except EvidenceError as error:
        assert str(error) and EvidenceRow.objects.count() == before
        return
    assert done.read == done.new + done.changed + done.confirmed + done.held + sum(done.skipped.values())
    assert EvidenceRow.objects.count() == before + done.new


@FUZZED
@given(changes=CELLS)
def test_rows_with_odd_cells(changes: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    row = {**measured_samples.record(accelerator_slug="h200-sxm", source_key="lab"), **changes}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    path = tmp_path_factory.mktemp("fuzz") / "rows.csv"
    path.write_text(text.getvalue(), encoding="utf-8", errors="replace")
    imported(path, {})


@FUZZED
@given(data=st.data())
def test_results_with_odd_values(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    record: dict[str, Any] = dict(data.draw(st.sampled_from(RECORDS)))
    for key in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=4)):
        inner = record[key]
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            record[key] = {**inner, data.draw(st.sampled_from(sorted(inner))): data.draw(VALUES)}
        else:
            record[key] = data.draw(VALUES)
    whole = {"benchmarks": [record]} if "config" in record and "metrics" in record else record
    path = tmp_path_factory.mktemp("fuzz") / "r.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    imported(path, OPTIONS if "framework" not in record else {})
