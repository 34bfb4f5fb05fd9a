"""The smallest change with which an option qualifies, on pages: words instead of keys of the workload file."""

import pytest

from advisor.templatetags.changes import limits_to_raise


@pytest.mark.parametrize(("stored", "shown"), [
    ("passes with ttft_ms_p95 >= 1441 and max_usd_per_month >= 3055",
     "qualifies with a TTFT p95 limit of 1,441 ms and a budget of $3,055 per month"),
    ("passes with site.max_kw >= 109.8", "qualifies with a site power of 110 kW"),
    ("passes with ttft_ms_p95 >= 5038 and tokens_per_s_per_user <= 29.6",
     "qualifies with a TTFT p95 limit of 5,038 ms and a minimum of 29.6 tokens/s per user"),
    ("priced with constraints.terms: [on_demand, spot] and no ttft_ms_p95",
     "priced with these rental terms allowed: on demand, spot and no limit on TTFT p95"),
    ("first of the machines with usd_per_accelerator_hour.gpu-max-1550 <= 0.703",
     "first of the machines with a price of at most $0.703 an hour for gpu-max-1550"),
    ("priced with usd_per_accelerator_hour.mi250 <= 5.16 and ttft_ms_p95 >= 2259",
     "ranked with a price of at most $5.16 an hour for mi250 and a TTFT p95 limit of 2,259 ms"),
    ("ranked with constraints.formats.allow: [fp8-block] (FP8 W8A8 block, TP4, vLLM 0.24.0)",
     "ranked with these weight formats allowed: fp8-block (FP8 W8A8 block, TP4, vLLM 0.24.0)"),
    ("slo.tpot_ms_p95: null", "no limit on TPOT p95"),
    ("use the vendor's hosted API", "use the vendor's hosted API"),
    ("passes with some_key >= 5", "qualifies with some_key 5"),
])  # fmt: skip
def test_keys_of_limits_and_lists_become_words(stored: str, shown: str) -> None:
    assert limits_to_raise(stored) == shown
