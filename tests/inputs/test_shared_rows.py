"""What studies keep of a workload to read the catalog gives the same rows as the whole workload."""

from typing import Any

import pytest

from advisor import inputs, workload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": {"mean": 2}}


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"regions": {"allow": ["us-east-1"]}},
        {"site": {"region": "us-east-1"}, "providers": {"allow": ["aws"]}, "terms": ["spot"]},
        {"accelerators": {"allow": ["l40s"]}, "acquisition": ["rent", "own"]},
    ],
)
def test_the_questions_of_a_workload_read_what_the_workload_reads(limits: dict[str, Any]) -> None:
    raw = {"model": "meta-llama/Llama-3.1-8B", "traffic": TRAFFIC, "constraints": limits}
    spec = inputs.with_catalog_names(workload.parse(raw))
    market, model = (ask(spec) for ask in (inputs.market_question, inputs.model_question))
    assert inputs.shared_rows(model, None) == inputs.model_rows(spec, None)
    rows = inputs.shared_rows(market, None)
    rows.pop("version")
    assert rows == inputs.market_rows(spec, None)
