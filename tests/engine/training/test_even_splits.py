"""The search offers no layout that `estimate` refuses."""

import pytest

from advisor.engine.training.parallel.even_splits import parallel_fault, pipeline_fault
from advisor.engine.training.parallel.layouts import candidates, run_of
from tests.engine.catalog_sample import LLAMA_70B
from tests.engine.training.test_layouts import job


@pytest.mark.parametrize(("chips", "length", "batch"), [(64, 8192, 122), (48, 1000, 24), (8, 4096, 3)])
def test_every_candidate_keeps_the_rules_of_an_estimate(chips: int, length: int, batch: int) -> None:
    asked = job(LLAMA_70B, chips, length, batch, "bf16")
    rows = candidates(asked)
    assert len(rows)
    for row in rows.tolist():
        run = run_of(asked, row)
        p = run.parallel
        assert parallel_fault(p, asked.model, length) is None
        assert pipeline_fault(p.pp, p.virtual_stages, run.micro_batches) is None


def test_interleaved_stages_take_micro_batches_in_groups() -> None:
    fault = pipeline_fault(6, 2, 64)
    assert fault is not None and fault.field == "micro_batches" and "multiple of 6" in fault.allowed
    assert pipeline_fault(4, 2, 64) is None and pipeline_fault(6, 1, 64) is None
