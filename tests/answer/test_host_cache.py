"""traffic.host_cache_hit_rate reaches the optimisation plan; more than a whole prompt is refused by name."""

import pytest

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError

TEXT = """
name: returning
model: meta-llama/Llama-3.1-8B-Instruct
traffic:
  {input_tokens: 4000, output_tokens: 200, requests_per_s: 2, prefix_cache_hit_rate: 0.5, host_cache_hit_rate: HOST}
slo: {ttft_ms_p95: 2000}
"""


def test_the_share_is_kept_apart_from_the_chip_s() -> None:
    traffic = parse(TEXT.replace("HOST", "0.4"))["traffic"]
    assert (traffic["prefix_cache_hit_rate"], traffic["host_cache_hit_rate"]) == (0.5, 0.4)


def test_more_than_a_prompt_is_refused_with_both_names() -> None:
    with pytest.raises(WorkloadError) as refused:
        parse(TEXT.replace("HOST", "0.6"))
    (said,) = refused.value.errors
    assert said["field"].startswith("traffic")
    assert "prefix_cache_hit_rate 0.5 and host_cache_hit_rate 0.6" in said["message"]
