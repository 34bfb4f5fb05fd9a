"""The reference data: every file loads, says where from, and is physically possible."""

from datetime import date
from pathlib import Path

import pytest

from advisor.engine.network.model import active_parameters, from_shape, parameters
from catalog.loading import fixtures, frameworks

ROOT = Path(__file__).parents[2] / "fixtures"
TODAY = date.today()


def by_name(paths):
    return [pytest.param(path, id=path.stem) for path in sorted(paths)]


ACCELERATORS = by_name((ROOT / "accelerators").glob("*.yaml"))
MODELS = by_name((ROOT / "models").glob("*.yaml"))
PRICES = by_name((ROOT / "prices").glob("*.csv"))
LISTS = {
    "quantization": fixtures.quantization,
    "regions": fixtures.region,
    "units": fixtures.unit,
    "overheads": fixtures.assumption,
}
SLOW_FP16 = {"gaudi3"}  # its matrix engine runs FP16 at about a quarter of BF16
# What a chip can multiply (BF16 or FP16 where it has them) for each byte it reads: FLOP / byte.
INTENSITY = {
    "gpu": (20, 700),
    "tpu": (100, 600),
    "npu": (40, 1300),
    "cpu": (50, 1300),
    "apple": (20, 130),  # from the M5 on, GPU cores have matrix units
    "edge": (100, 1000),
    "rdu": (300, 1000),
    "lpu": (0.5, 10),
    "wafer": (0.1, 10),
    "fpga": (0, 4000),
}


def read_list(name):
    return fixtures.listed(ROOT / f"{name}.yaml", LISTS[name])


@pytest.mark.parametrize("path", ACCELERATORS)
def test_an_accelerator_is_sourced_and_possible(path):
    chip = fixtures.accelerator(path)
    assert {"memory", "host"} <= set(chip["sources"])
    assert chip["as_of"] <= TODAY
    assert 0.2 <= chip["memory_gib"] <= 9216
    assert 40 <= chip["memory_gb_per_s"] <= 21_000_000
    assert 5 <= chip.get("tdp_watts", 10) <= 25_000
    assert chip.get("idle_watts", 0) < chip.get("tdp_watts", 1)
    assert 2015 <= chip["release_year"] <= TODAY.year
    assert chip["chips_per_host"] in (1, 2, 4, 8, 12, 16)


@pytest.mark.parametrize("path", ACCELERATORS)
def test_the_rates_of_an_accelerator_fit_each_other(path):
    chip = fixtures.accelerator(path)
    rates = chip.get("dense_tflops", {})
    if "fp16" in rates and "bf16" in rates and chip["slug"] not in SLOW_FP16:
        assert rates["fp16"] == rates["bf16"]
    for narrow, wide in (("fp8", "bf16"), ("fp4", "fp8"), ("fp16", "tf32"), ("int4", "int8")):
        if narrow in rates and wide in rates:
            assert rates[narrow] >= rates[wide] * 0.99
    if rate := rates.get("bf16") or rates.get("fp16"):
        low, high = INTENSITY[chip["kind"]]
        assert low <= rate * 1e12 / (chip["memory_gb_per_s"] * 1e9) <= high


@pytest.mark.parametrize("path", ACCELERATORS)
def test_links_are_listed_near_to_far(path):
    links = fixtures.accelerator(path).get("links", [])
    assert [link["gb_per_s"] for link in links] == sorted((link["gb_per_s"] for link in links), reverse=True)
    assert [link["chips"] for link in links] == sorted(link["chips"] for link in links)


@pytest.mark.parametrize("path", ACCELERATORS)
def test_a_chip_that_is_not_served_says_why(path):
    chip = fixtures.accelerator(path)
    assert bool(chip.get("not_served_reason")) != chip["served"]
    if chip["served"]:
        assert chip["stacks"]
        assert chip["dense_tflops"]


@pytest.mark.parametrize("path", MODELS)
def test_the_shape_of_a_model_has_its_published_size(path):
    row = fixtures.served_model(path)
    model = from_shape(row["slug"], row["shape"])
    if "published" not in row["sources"]:
        assert parameters(model) > 0  # no exact size is published: the source of the shape is all there is
        return
    rounded = row["sources"]["published"]["rounded"]
    assert parameters(model) == pytest.approx(row["published_parameters"], rel=0.02 if rounded else 0.01)
    if active := row["published_active_parameters"]:
        # Cards leave embeddings (one or both) out, or round to a billion.
        assert active_parameters(model) - 2 * model.vocab * model.hidden <= active * 1.05
        assert active_parameters(model) >= active * 0.95


@pytest.mark.parametrize("path", MODELS)
def test_a_model_is_sourced_and_named_after_its_id(path):
    row = fixtures.served_model(path)
    assert row["slug"] == "".join(c if c.isalnum() else "-" for c in row["hf_id"].lower())
    assert row["native_dtype"] in {"fp32", "bf16", "fp16", "fp8", "mxfp4", "int4", "nvfp4"}
    more = {name for name in row["sources"] if not name.startswith("conversion ")}
    assert {"shape"} <= more <= {"shape", "published", "checkpoint", "drafts", "engines", "hosting"}
    assert row["as_of"] <= TODAY


@pytest.mark.parametrize("path", PRICES)
def test_every_offer_is_dated_sourced_and_plausible(path):
    slugs = {param.values[0].stem for param in ACCELERATORS}
    rows = list(fixtures.prices(path))
    assert rows
    fixtures.refuse_duplicates(path.name, rows, ("provider", "instance", "region", "accelerator", "term", "as_of"))
    for row in rows:
        assert row["accelerator"] in slugs
        assert date(2019, 1, 1) < row["as_of"] <= TODAY
        assert row["accelerators"] <= (3200 if row["unit"] == "slice" else 72)
        if row["term"] == "purchase":
            assert 200 <= row["purchase_usd"] / row["accelerators"] <= 3_000_000
        else:
            assert 0.01 <= row["usd_per_hour"] / row["accelerators"] <= 60


@pytest.mark.parametrize("path", PRICES)
def test_a_file_of_prices_records_where_they_are_from(path):
    with path.open() as stream:
        assert {"origin", "confidence", "unit"} <= set(stream.readline().strip().split(","))


def test_every_price_per_chip_has_a_smallest_unit_with_a_source():
    known = {(row["provider"], row["accelerator"]): row for row in fixtures.smallest_units(ROOT / "smallest_units.csv")}
    rows = [row for param in PRICES for row in fixtures.prices(param.values[0]) if fixtures.is_per_chip(row)]
    assert len(rows) > 339
    own = [row for row in rows if row["smallest_unit_source"]]
    assert {(row["provider"], row["accelerator"]) for row in rows if row not in own} == set(known)
    chips = {chip["slug"]: chip for chip in (fixtures.accelerator(param.values[0]) for param in ACCELERATORS)}
    for (_, slug), row in known.items():
        assert row["source"] and row["as_of"] <= TODAY
        assert not row["accelerators"] or chips[slug]["chips_per_host"] % row["accelerators"] == 0
    units = {key: row["accelerators"] for key, row in known.items()}
    assert units["scaleway", "b300"] == 8 and units["scaleway", "h100-pcie"] == 1
    assert {unit for (provider, _), unit in units.items() if provider == "runpod"} == {1}


def test_at_most_25_served_chips_have_no_price():
    rows = [row for param in PRICES for row in fixtures.prices(param.values[0])]
    units = read_list("units")
    priced = {row["accelerator"] for row in rows} | {u["accelerator"] for u in units if u.get("price_usd")}
    served = {param.values[0].stem for param in ACCELERATORS if fixtures.accelerator(param.values[0])["served"]}
    unpriced = served - priced
    assert len(unpriced) <= 25, sorted(unpriced)
    assert not [row for row in rows if row["currency"] != "USD" and not row["listed_price"]]


def test_a_provider_has_one_file():
    for param in PRICES:
        path = param.values[0]
        assert len({row["provider"] for row in fixtures.prices(path)}) == 1


@pytest.mark.parametrize(
    ("name", "key"), [("quantization", "slug"), ("regions", "slug"), ("overheads", "key"), ("units", "slug")]
)
def test_a_list_names_everything_once(name, key):
    rows = read_list(name)
    assert len({row[key] for row in rows}) == len(rows) > 0
    assert all(row["as_of"] <= TODAY for row in rows)


MIXERS = {
    "attention",
    "window",
    "latent",
    "compressed",
    "recurrent",
    "encoder",
    "cross-attention",
    "speech",
    "vision",
    "diffusion",
}


def test_frameworks_name_only_known_methods_vendors_and_stacks():
    methods = {row["slug"] for row in read_list("quantization") if row["settings"]["applies_to"] == "weights"}
    chips = [fixtures.accelerator(param.values[0]) for param in ACCELERATORS]
    for row in frameworks.frameworks(ROOT):
        settings = row["settings"]
        assert set(settings["quantizations"]) <= methods
        assert set(settings["vendors"]) <= {chip["vendor"] for chip in chips}
        assert settings["kinds"] or settings["role"] != "serving", row["slug"]
        assert set(settings["stacks"]) <= {stack for chip in chips for stack in chip["stacks"]}
        assert set(settings["kinds"]) <= set(fixtures.KINDS)
        assert set(settings["mixers"]) <= MIXERS
        assert settings["scheduler"] in {"chunked", "prefill_first", "static"}
        assert 0 < settings["memory_fraction"] <= 1


def test_every_served_chip_has_a_framework():
    known = [row["settings"] for row in frameworks.frameworks(ROOT)]
    for param in ACCELERATORS:
        chip = fixtures.accelerator(param.values[0])
        assert not chip["served"] or any(
            chip["vendor"] in each["vendors"]
            and chip["kind"] in each["kinds"]
            and set(chip["stacks"]) & set(each["stacks"])
            for each in known
        ), chip["slug"]


def test_hosted_prices_are_dated_sourced_and_of_known_models():
    slugs = {param.values[0].stem for param in MODELS}
    rows = list(fixtures.api_prices(ROOT / "api_prices.csv"))
    fixtures.refuse_duplicates("api_prices.csv", rows, ("provider", "name", "as_of"))
    for row in rows:
        assert row["model"] in slugs
        assert date(2024, 1, 1) < row["as_of"] <= TODAY
        assert 0 < row["usd_per_mtok_input"] <= row["usd_per_mtok_output"] * 3 <= 300
        assert (row["usd_per_mtok_cached_input"] or 0) <= row["usd_per_mtok_input"]


@pytest.mark.parametrize("row", read_list("quantization"), ids=lambda row: row["slug"])
def test_bits_agree_with_the_dtype(row):
    settings = row["settings"]
    digits = "".join(c for c in settings["weights_dtype"].split("_")[0] if c.isdigit())
    if digits and row["slug"] != "int4-sparse":
        nominal = int(digits)
        assert nominal <= settings["bits_per_weight"] <= nominal + 0.85


@pytest.mark.parametrize("row", read_list("regions"), ids=lambda row: row["slug"])
def test_a_region_is_plausible(row):
    assert 0.02 <= row.get("electricity_usd_per_kwh", 0.1) <= 0.6
    assert 0.001 <= row.get("grid_kgco2e_per_kwh", 0.1) <= 1


@pytest.mark.parametrize("row", read_list("overheads"), ids=lambda row: row["key"])
def test_a_default_lies_in_its_range(row):
    assert row.get("low", row["value"]) <= row["value"] <= row.get("high", row["value"])


def test_no_figure_rests_on_a_share_alike_source():
    for path in [*ROOT.rglob("*.yaml"), *(ROOT / "prices").glob("*.csv"), ROOT / "api_prices.csv"]:
        text = path.read_text()
        assert not any(word in text for word in ("ml-engineering", "SpareCores", "CC-BY-SA")), path.name
