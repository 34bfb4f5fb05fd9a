"""Public price data becomes rows for import: whole instances, known chips, and every other line counted."""

import json
from pathlib import Path

import pytest

from catalog.importers.prices import aws, azure, gcp, gpu_price_index, hosted, names, openrouter
from catalog.importers.prices.offers import Account
from catalog.loading import fixtures
from catalog.loading.fixtures import FixtureError

SAMPLES = Path(__file__).parent / "price_samples"
KEYS = {
    *("provider", "instance", "accelerator", "accelerators", "region", "vcpus", "host_memory_gib", "term"),
    *("usd_per_hour", "purchase_usd", "kind", "as_of", "source", "notes", "origin", "confidence"),
}
DAY = "2026-11-23"
CATALOG = names.Catalog(
    gib={
        path.stem: fixtures.read_yaml(path)["memory"]["gib"]
        for path in (Path(__file__).parents[2] / "fixtures/accelerators").glob("*.yaml")
    },
    instances={
        row["instance"]: (row["accelerator"], row["accelerators"])
        for row in fixtures.prices(Path(__file__).parents[2] / "fixtures/prices/azure.csv")
    },
)
ACCELERATORS = {path.stem for path in (Path(__file__).parents[2] / "fixtures/accelerators").glob("*.yaml")}


def sample(name):
    return (SAMPLES / name).read_text()


def rows_of(read, text):
    """The rows, each checked as the import does, and the counts of the other lines."""
    account = Account()
    rows = list(read(text, CATALOG, DAY, account))
    used = {number for row in rows for number in row.rows}
    assert account.read == len(used) + sum(account.skipped.values())
    for row in rows:
        assert set(row) - {"availability"} == KEYS and all(isinstance(value, str) for value in row.values())
        assert row["accelerator"] in ACCELERATORS
        fixtures.price("sample", row)
    return rows, account.skipped


def brief(rows):
    names = ("instance", "region", "term", "accelerator", "accelerators", "usd_per_hour")
    return [tuple(row[name] for name in names) for row in rows]


def test_azure_reads_linux_machines_on_demand_and_spot():
    rows, skipped = rows_of(azure.read, sample("azure.json"))
    assert brief(rows) == [
        ("Standard_NC24ads_A100_v4", "westus3", "on_demand", "a100-80gb-pcie", "1", "3.673"),
        ("Standard_NC40ads_H100_v5", "uaenorth", "on_demand", "h100-nvl", "1", "9.98"),
        ("Standard_NC40ads_H100_v5", "uaenorth", "spot", "h100-nvl", "1", "1.844304"),
        ("Standard_ND96isr_MI300X_v5", "northeurope", "on_demand", "mi300x", "8", "57.6"),
    ]
    assert skipped == {"Windows": 1, "Low Priority": 1}
    assert {(row["origin"], row["confidence"], row["as_of"]) for row in rows} == {("provider_api", "high", DAY)}


def test_azure_spreads_the_price_of_a_reservation_over_its_hours():
    rows, skipped = rows_of(azure.read, sample("azure_reservations.json"))
    assert brief(rows) == [
        ("Standard_ND96isr_H100_v5", "eastus", "reserved_1y", "h100-sxm", "8", "40"),  # 350400 / 8760
        ("Standard_ND96isr_H100_v5", "eastus", "reserved_3y", "h100-sxm", "8", "20"),  # 525600 / 26280
    ]
    assert skipped == {"no price, region or known term": 1, azure.OTHER_SIZE: 1}


def test_azure_leaves_out_a_spot_price_that_is_no_discount():
    document = json.loads(sample("azure.json"))
    document["Items"] = document["Items"][1:3]
    document["Items"][1]["retailPrice"] = 9.98
    rows, skipped = rows_of(azure.read, json.dumps(document))
    assert [row["term"] for row in rows] == ["on_demand"]
    assert skipped == {"spot price that is no discount": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"currencyCode": "EUR"}, "not in USD"),
        ({"isPrimaryMeterRegion": False}, "not the primary meter"),
        ({"unitOfMeasure": "1/Month"}, "not by the hour"),
        ({"productName": "NCads A100 v4 Series Cloud Services"}, "Cloud Services"),
        ({"type": "DevTestConsumption"}, "no price, region or known term"),
        ({"retailPrice": 0.0}, "no price, region or known term"),
        ({"retailPrice": "soon"}, "no price, region or known term"),
        ({"reservationTerm": [], "type": "Reservation"}, "unreadable item"),
    ],
)
def test_azure_counts_what_is_no_offer(change, reason):
    item = json.loads(sample("azure.json"))["Items"][0] | change
    assert rows_of(azure.read, json.dumps({"Items": [item]})) == ([], {reason: 1})


def test_azure_names_the_next_page():
    assert azure.next_page(sample("azure.json")) == "https://prices.azure.com:443/api/retail/prices?$skip=1000"
    assert azure.next_page(sample("azure_reservations.json")) is None


def test_aws_reads_on_demand_and_reservations_without_payment_in_advance():
    rows, skipped = rows_of(aws.read, sample("aws_price_list.json"))
    assert brief(rows) == [
        ("p5.48xlarge", "us-east-1", "on_demand", "h100-sxm", "8", "55.04"),
        ("p5.48xlarge", "us-east-1", "reserved_1y", "h100-sxm", "8", "40"),
        ("p5.48xlarge", "us-east-1", "reserved_3y", "h100-sxm", "8", "24"),
        ("g4dn.xlarge", "us-east-1", "on_demand", "t4", "1", "0.526"),
    ]
    assert (rows[0]["vcpus"], rows[0]["host_memory_gib"], rows[0]["as_of"]) == ("192", "2048", "2026-09-15")
    assert skipped == {
        "not a machine with an accelerator": 1,
        "another system, tenancy, software or use of capacity": 3,
        "no price in USD per hour, or unknown term": 1,
    }


def test_aws_counts_products_that_cannot_be_read():
    document = json.loads(sample("aws_price_list.json"))
    del document["products"]["7TVXMFHQR6U7W5CV"]["attributes"]
    del document["products"]["3D4V8UAYEMB38GU2"]["attributes"]["regionCode"]
    rows, skipped = rows_of(aws.read, json.dumps(document))
    assert rows == []
    assert (skipped["unreadable product"], skipped["no regionCode"]) == (1, 1)


def test_aws_spot_takes_the_newest_price_of_the_cheapest_zone():
    rows, skipped = rows_of(aws.read_spot, sample("aws_spot.json"))
    assert brief(rows) == [  # zone a: 28.50 since the 22nd; zone b: 26.25 since the 21st, 21.00 before
        ("p5.48xlarge", "us-east-1", "spot", "h100-sxm", "8", "26.25"),
        ("g6.xlarge", "eu-central-1", "spot", "l4", "1", "0.4123"),
    ]
    assert [(row["as_of"], row["notes"]) for row in rows] == [
        ("2026-11-21", "cheapest zone us-east-1b"),
        ("2026-11-22", "cheapest zone eu-central-1c"),
    ]
    assert skipped == {
        "not Linux": 1,
        "no price, or not a zone of a region": 1,
        "not a machine with an accelerator": 1,
        "older price, or another zone is as cheap": 3,
    }


def test_gcp_adds_up_the_skus_of_a_machine():
    rows, skipped = rows_of(gcp.read, sample("gcp_skus.json"))
    prices = {(row["instance"], row["region"]): row["usd_per_hour"] for row in rows}
    assert prices["a2-highgpu-1g", "us-central1"] == "3.673385"  # 2.933908 + 12 x 0.031611 + 85 x 0.004237
    assert prices["a2-highgpu-8g", "us-west1"] == "29.38708"  # 8 times as much
    assert prices["a2-megagpu-16g", "us-east1"] == "55.739504"  # 16 x 2.933908 + 96 x 0.031611 + 1360 x 0.004237
    assert len(rows) == 15 and {row["as_of"] for row in rows} == {"2023-03-24"}
    assert skipped == {"not a part of a machine with accelerators": 1}


def test_gcp_reads_slices_commitments_and_skips_shares_of_accelerators():
    rows, skipped = rows_of(gcp.read, sample("gcp_skus_more.json"))
    found = {(row["instance"], row["term"]): row["usd_per_hour"] for row in rows}
    assert found["g4-standard-48", "on_demand"] == "4.49993"  # 1.09565 + 48 x 0.04891 + 180 x 0.00587
    assert found["a4-highgpu-8g", "spot"] == "39.6336"  # 8 x 4.9542, filed under OnDemand
    # 4 + 26 x 0.02 + 234 x 0.002 x 1.073741824, as this memory is sold by decimal GB
    assert found["a3-highgpu-1g", "reserved_1y"] == "5.022511"
    assert {instance[:3] for instance, _ in found} == {"g4-", "a4-", "a3-"}
    # L4 without its machines; a share of an RTX PRO 6000 and a flex-start machine
    assert skipped == {
        "SKU of accelerator, cores or memory missing in a region": 1,
        gcp.UNKNOWN_CHIP: 1,
        "another way to reserve capacity": 1,
    }
    ssd = {row["instance"]: (row["confidence"], row["notes"]) for row in rows}
    assert ssd["a3-highgpu-1g"] == ("medium", gcp.SSD_NOTE) and ssd["g4-standard-48"] == ("high", "")


def test_gcp_reads_tpus_by_the_chip_and_old_ones_by_four_chips():
    account = Account()
    rows = list(gcp.read(sample("gcp_tpu.json"), CATALOG, DAY, account))
    assert [*brief(rows)] == [
        ("tpu-v5e (per GPU)", "asia-south2", "on_demand", "tpu-v5e", "1", "1.44132"),
        ("tpu-v5p (per GPU)", "southamerica-east1", "on_demand", "tpu-v5p", "1", "6.430995"),
        ("tpu-v6e (per GPU)", "us-south1", "on_demand", "tpu-v6e", "1", "2.7"),
        *(
            ("tpu-v7 (per GPU)", f"us-{where}1", "on_demand", "tpu-v7", "1", "12")
            for where in ("west", "central", "east")
        ),
        ("tpu-v5e (per GPU)", "asia-southeast1", "spot", "tpu-v5e", "1", "0.78"),
        ("tpu-v5p (per GPU)", "europe-west4", "reserved_3y", "tpu-v5p", "1", "1.911"),
        ("v4-8", "us-central2", "on_demand", "tpu-v4", "4", "12.88"),
        ("v3-8", "europe-west4", "on_demand", "tpu-v3", "4", "8.8"),
        ("v3-8", "europe-west4", "spot", "tpu-v3", "4", "2.64"),
    ]
    units = {row["accelerator"]: row.get("smallest_unit_accelerators") for row in rows}
    assert units == {"tpu-v5e": "1", "tpu-v5p": "4", "tpu-v6e": "1", "tpu-v7": "4", "tpu-v4": None, "tpu-v3": None}
    assert account.skipped == {"another way to reserve capacity": 1, gcp.UNKNOWN_CHIP: 2}
    assert "TpuV9z" in account.proposed and not any("Reserved" in name for name in account.proposed)


def aws_product(instance, usd, **attributes):
    """A product of the price list, after the published p5.48xlarge."""
    document = json.loads(sample("aws_price_list.json"))
    product = document["products"]["7TVXMFHQR6U7W5CV"]
    product["attributes"] |= {"instanceType": instance, **attributes}
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": str(usd)}}
    return product, {"OnDemand": {"A": {"a": {"priceDimensions": {"d": dimension}}}}}


@pytest.mark.parametrize(
    ("instance", "attributes", "chips", "held"),
    [
        ("trn1.32xlarge", {"gpu": "16"}, ("trainium1", "16"), False),
        ("trn1.2xlarge", {}, ("trainium1", "1"), False),
        ("trn2.48xlarge", {}, ("trainium2", "16"), False),
        ("trn2.6xlarge", {"gpu": "2"}, ("trainium2", "2"), True),
        ("trn3.48xlarge", {"gpu": "4"}, ("trainium3", "4"), True),
        ("dl1.24xlarge", {"gpu": "8"}, ("gaudi1", "8"), False),
        ("p6e-gb200.36xlarge", {"gpu": "4"}, ("gb200", "4"), False),
        ("p6e-gb300.36xlarge", {"gpu": "4"}, ("gb300", "4"), True),
        ("u-p6e-gb200x72", {}, ("gb200", "72"), True),  # an UltraServer: its whole NVLink domain
        ("u-p6e-gb300x72", {}, ("gb300", "72"), True),
        ("u-trn2x64", {}, ("trainium2", "64"), True),
    ],
)
def test_aws_prices_a_trainium_gaudi_or_grace_machine_as_what_is_rented(instance, attributes, chips, held):
    product, terms = aws_product(instance, 100, **attributes)
    document = {"products": {"A": product}, "terms": terms, "publicationDate": "2026-11-20T00:00:00Z"}
    (row,), _ = rows_of(aws.read, json.dumps(document))
    assert ((row["accelerator"], row["accelerators"]), row["usd_per_hour"], bool(row.hold)) == (chips, "100", held)


@pytest.mark.parametrize("region", ["us-gov-west-1", "us-gov-east-1", "us-iso-east-1"])
def test_regions_for_governments_are_no_region(region):
    product, terms = aws_product("p5.48xlarge", 55, regionCode=region)
    found = rows_of(aws.read, json.dumps({"products": {"A": product}, "terms": terms}))
    assert found == ([], {"region for governments": 1})


def azure_item(size, usd=100.0):
    return json.loads(sample("azure.json"))["Items"][0] | {"armSkuName": size, "retailPrice": usd}


@pytest.mark.parametrize(
    ("size", "chips"),
    [
        ("Standard_ND128isr_GB300_v6", ("gb300", "4")),
        ("Standard_ND128isr_NDR_GB200_v6", ("gb200", "4")),
    ],
)
def test_azure_prices_the_machine_of_a_rack(size, chips):
    (row,), _ = rows_of(azure.read, json.dumps({"Items": [azure_item(size)]}))
    assert ((row["accelerator"], row["accelerators"]), row["usd_per_hour"]) == (chips, "100")


def test_gcp_joins_pages_and_names_the_next():
    pages = [sample("gcp_skus.json"), sample("gcp_skus_more.json")]
    assert [str(gcp.next_page(page))[:8] for page in pages] == ["APKCS1HV", "None"]
    joined, _ = rows_of(gcp.read, gcp.merged(pages))
    assert sorted(map(str, joined)) == sorted(str(row) for page in pages for row in rows_of(gcp.read, page)[0])


def test_gcp_counts_other_currencies_units_and_forms():
    skus = json.loads(sample("gcp_skus.json"))["skus"][:3]
    skus[0]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = "IDR"
    skus[1]["pricingInfo"][0]["pricingExpression"]["usageUnit"] = "h"
    skus[2]["pricingInfo"] = []
    rows, skipped = rows_of(gcp.read, json.dumps({"skus": [*skus, {}]}))
    assert (rows, skipped) == ([], {"no price in USD per hour, or unknown usageType": 2, "unreadable SKU": 2})


def test_openrouter_reads_prices_per_million_tokens():
    models = [
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama-llama-3-3-70b-instruct"),
        ("meta-llama/Llama-3.1-8B", "meta-llama-llama-3-1-8b"),
        ("acme/Auto", "acme-auto"),
        ("MiniMaxAI/MiniMax-M3", "minimax-m3"),
        ("poolside/Laguna-XS-2.1", "laguna"),
    ]
    account = Account()
    rows = list(openrouter.read(sample("openrouter_models.json"), hosted.models(models), DAY, account))
    assert [fixtures.api_price("sample", row)["model"] for row in rows] == [models[0][1], models[1][1]]
    assert rows[1] == {
        "provider": "openrouter",
        "name": "meta-llama/llama-3.1-8b-instruct",
        "model": "meta-llama-llama-3-1-8b",
        "usd_per_mtok_input": "0.050000",
        "usd_per_mtok_cached_input": "0.025000",
        "usd_per_mtok_output": "0.080000",
        "max_input_tokens": "131072",
        "as_of": DAY,
        "source": "OpenRouter models API, model meta-llama/llama-3.1-8b-instruct",
    }
    assert (rows[0]["usd_per_mtok_input"], rows[0]["usd_per_mtok_cached_input"]) == ("0.130000", "")
    assert account.skipped == {"model not in the catalog": 2, "no price per token": 2, "price of batches": 1}


def test_openrouter_prefers_the_id_on_the_hub_and_counts_other_forms():
    entry = {"id": "acme/x", "hugging_face_id": "Acme/Big-7B", "pricing": {"prompt": "0.000001", "completion": "2e-6"}}
    account = Account()
    models = hosted.models([("acme/big-7b", "big")])
    rows = list(openrouter.read(json.dumps({"data": [entry, {"id": "y"}]}), models, DAY, account))
    assert [(row["model"], row["usd_per_mtok_output"]) for row in rows] == [("big", "2.000000")]
    assert account.skipped == {"unreadable model": 1}


def test_gpu_price_index_reads_whole_instances_and_single_chips():
    rows, skipped = rows_of(gpu_price_index.read, sample("gpu_price_index.csv"))
    assert [(row["provider"], *line) for row, line in zip(rows, brief(rows), strict=True)] == [
        ("aws", "p5.48xlarge", "us-east-1", "on_demand", "h100-sxm", "8", "55.04"),
        ("azure", "Standard_NC80adis_H100_v5", "eastus", "spot", "h100-nvl", "2", "2.5798"),
        ("coreweave", "nvidia-b300", "north-america", "spot", "b300", "8", "35.84"),
        ("crusoe", "l40s (per GPU)", "any", "on_demand", "l40s", "1", "1.5"),
        ("gcp", "a3-highgpu-8g", "us-central1", "on_demand", "h100-sxm", "8", "88.49"),
        ("lambda", "gpu_2x_a100_pcie", "any", "on_demand", "a100-40gb-pcie", "2", "3.98"),
        ("oci", "BM.GPU.L40S.4", "global", "on_demand", "l40s", "4", "14"),  # 4 x 3.50
        ("runpod", "H100 SXM community (per GPU)", "any", "on_demand", "h100-sxm", "1", "2.69"),
        ("vast-ai", "median offer (per GPU)", "any", "on_demand", "a100-40gb-sxm", "1", "0.588"),
    ]
    trust = {row["provider"]: (row["kind"], row["origin"], row["confidence"]) for row in rows}
    assert trust["aws"] == ("vm", "provider_api", "high")
    assert trust["gcp"] == ("vm", "official_list", "high")
    assert trust["oci"] == ("bare_metal", "provider_api", "high")
    assert trust["runpod"] == ("marketplace", "marketplace", "low")
    assert trust["vast-ai"] == ("marketplace", "marketplace", "medium")
    assert {row["as_of"] for row in rows} == {"2026-10-10"}
    assert rows[-1]["notes"] == "median of 50 offers at one moment; SXM or PCIe not stated by the source"
    assert skipped == {
        "slice of an accelerator": 1,
        "placeholder price of RunPod": 1,
        "median of fewer than 10 offers": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (",H100,", ",H900,", "no accelerator of this name in the catalog"),
        (",aws,", ",acme,", "no source of this name in the catalog"),
        (",55.04,", ",,", "no price, or unknown term"),
        (",on_demand,", ",weekly,", "no price, or unknown term"),
        (",55.04,", ",6.88,", "price per GPU and per instance disagree"),
        (",8,55.04,", ",eight,55.04,", "unreadable line"),
    ],
)
def test_gpu_price_index_counts_what_cannot_be_used(old, new, reason):
    header, line, *_ = sample("gpu_price_index.csv").splitlines()
    assert rows_of(gpu_price_index.read, f"{header}\n{line.replace(old, new)}\n") == ([], {reason: 1})


def test_gpu_price_index_counts_an_offer_listed_twice():
    header, line, *_ = sample("gpu_price_index.csv").splitlines()
    rows, skipped = rows_of(gpu_price_index.read, "\n".join((header, line, line)))
    assert (len(rows), skipped) == (1, {"duplicate instance, region and term": 1})


def read_openrouter(text, catalog, as_of, account):
    return openrouter.read(text, hosted.models([]), as_of, account)


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"Items": 1, "products": [], "skus": [1], "data": {}}'])
@pytest.mark.parametrize("read", [azure.read, aws.read, aws.read_spot, gcp.read, read_openrouter, gpu_price_index.read])
def test_a_document_of_another_form_is_refused(read, text):
    with pytest.raises(FixtureError, match="expected|not JSON"):
        list(read(text, CATALOG, DAY, Account()))
