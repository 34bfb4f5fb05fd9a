"""What a planner may be offered by name is in the reference data, complete and with its conflicts settled."""

import csv
from pathlib import Path

import pytest

from catalog.loading import fixtures, frameworks

ROOT = Path(__file__).parents[2] / "fixtures"
CHIPS = {path.stem: fixtures.accelerator(path) for path in sorted((ROOT / "accelerators").glob("*.yaml"))}
NAMED = """
    v100-16gb-sxm v100-32gb-sxm t4 a10 a10g a30 a40 a100-40gb-sxm a100-80gb-sxm a100-40gb-pcie a100-80gb-pcie l4 l40s
    rtx-3090 rtx-4090 rtx-5090 rtx-6000-ada rtx-pro-6000-blackwell h100-sxm h100-pcie h100-nvl h200-sxm h200-nvl
    gh200-96gb gh200-144gb b100 b200 b300 gb200 gb300 mi250x mi300x mi325x mi350x mi355x gaudi2 gaudi3 arc-pro-b60
    arc-pro-b60-dual-48gb tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7 inferentia2 trainium1 trainium2 trainium3 groq-lpu
    cerebras-wse-3 sambanova-sn40l apple-m1-max apple-m1-ultra apple-m2-max apple-m2-ultra apple-m3-max apple-m3-ultra
    apple-m4-max apple-m5-max xeon-8480plus xeon-6980p epyc-9965 alveo-v80 vck5000 tenstorrent-n150d tenstorrent-p150a
    qualcomm-ai100-std qualcomm-ai100-ultra jetson-agx-orin-64gb jetson-agx-thor-128gb npu-laptop-40tops
    npu-phone-flagship
""".split()
FRAMEWORKS = """
    vllm sglang tensorrt-llm tgi lmdeploy llama.cpp mlx onnxruntime jetstream vllm-tpu neuron optimum-habana vllm-gaudi
    deepspeed torchao executorch openvino coreml atom vllm-atom sglang-atom sglang-jax
""".split()
METHODS = """
    int8 fp8 gptq gptq-3bit awq nvfp4 mxfp4 mxfp6 mxfp8 gguf-q4-k-m kv-fp8 kv-int8 int4-qat bitnet int4-sparse
""".split()
# Where public figures conflict, the row says which was taken: the chip, and words of its notes.
SETTLED = {
    "h100-sxm": "sparse", "b300": "FP4", "gaudi3": "1835", "a10g": "A10", "b200": "", "mi300x": "", "trainium2": "",
    "tpu-v6e": "", "rtx-4090": "", "mi355x": "", "h100-pcie": "", "cerebras-wse-3": "",
    "jetson-agx-orin-64gb": "sparse",
}  # fmt: skip


def rows(name, reader):
    return {row["slug"]: row for row in fixtures.listed(ROOT / f"{name}.yaml", reader)}


def test_every_accelerator_that_is_named_has_a_row():
    assert set(NAMED) - set(CHIPS) == set()


def test_every_named_row_is_complete():
    """What runs a framework states rates, stacks, links and how it can be had; power, unless the vendor keeps it."""
    lacking = []
    for slug in NAMED:
        chip = CHIPS[slug]
        needed = ["release_year", "memory_gb_per_s"]
        if chip["served"]:
            needed += ["dense_tflops", "stacks", "bought_as"] + ["links"] * (chip["chips_per_host"] > 1)
        if "No TDP is published" not in chip.get("notes", ""):
            needed.append("tdp_watts")
        lacking += [f"{slug}: {key}" for key in needed if not chip.get(key)]
    assert lacking == []


def test_every_framework_and_method_that_is_named_has_a_row():
    assert set(FRAMEWORKS) - {row["slug"] for row in frameworks.frameworks(ROOT)} == set()
    assert set(METHODS) - set(rows("quantization", fixtures.quantization)) == set()


@pytest.mark.parametrize(("slug", "words"), SETTLED.items())
def test_a_conflict_between_public_figures_is_settled_in_the_notes(slug, words):
    notes = CHIPS[slug].get("notes", "")
    assert notes and words in notes


def test_there_are_three_hundred_offers_of_thirty_providers():
    offers = [row for path in (ROOT / "prices").glob("*.csv") for row in fixtures.prices(path)]
    rented = [row for row in offers if row["term"] != "purchase"]
    assert len(rented) >= 300
    assert len({row["provider"] for row in rented}) >= 30


def test_a_way_to_quantize_says_what_it_costs_to_produce():
    silent = [
        slug for slug, row in rows("quantization", fixtures.quantization).items() if "effort" not in row["settings"]
    ]
    assert silent == []


def test_a_framework_states_its_licence():
    silent = [row["slug"] for row in frameworks.frameworks(ROOT) if not row["settings"].get("licence")]
    assert silent == []


def test_units_are_possible():
    """Chips fill hosts evenly, a unit draws at least what its chips draw, and a price lies in its range."""
    for slug, row in rows("units", fixtures.unit).items():
        chip = CHIPS[row["accelerator"]]
        assert row["accelerators"] % row.get("instances", 1) == 0, slug
        if (watts := row.get("watts")) and "tdp_watts" in chip:
            assert (
                row["accelerators"] * chip["tdp_watts"] * 0.75 <= watts <= 60 * row["accelerators"] * chip["tdp_watts"]
            ), slug
        if price := row.get("price_usd"):
            assert row.get("price_usd_min", price) <= price <= row.get("price_usd_max", price), slug
        if row["kind"] == "slice":
            sizes = [int(size) for size in row["shape"].split("x")]
            product = 1
            for size in sizes:
                product *= size
            assert product == row["accelerators"], slug
        if "lead_time" in row:
            assert "lead_time" in row["sources"], slug


def test_instances_that_a_rack_or_cluster_joins_have_a_price():
    prices = [row for path in (ROOT / "prices").glob("*.csv") for row in csv.DictReader(path.open(encoding="utf-8"))]
    sold = {(row["accelerator"], f"{row['provider']} {one}") for row in prices for one in (row["instance"], "*")}
    joining = [row for row in rows("units", fixtures.unit).values() if "sold_as" in row]
    assert {"rack", "cluster"} == {row["kind"] for row in joining}
    assert not [
        (row["slug"], one) for row in joining for one in row["sold_as"] if (row["accelerator"], one) not in sold
    ]


def test_what_a_chip_was_seen_to_reach_is_below_its_data_sheet():
    path = ROOT / "measurements" / fixtures.BENCHMARKS
    for row in fixtures.table(path, fixtures.BENCHMARK_COLUMNS, fixtures.benchmark):
        chip = CHIPS[row["accelerator"]]
        peak = chip["memory_gb_per_s"] if row["unit"] == "GB/s" else chip["dense_tflops"][row["what"].split()[-1]]
        assert 0 < row["value"] <= peak, row["what"]
