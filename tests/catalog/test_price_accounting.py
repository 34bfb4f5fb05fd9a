"""Every row of a feed is accounted for, in every reader and through `prices sync`, whatever is wrong with it."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.importers.prices import (
    aws,
    azure,
    gcp,
    gpu_price_index,
    gpuhunt,
    hosted,
    litellm,
    names,
    openrouter,
    skypilot,
)
from catalog.importers.prices.offers import Account, Offer
from catalog.loading import fixtures
from catalog.models import Accelerator, ApiPrice, ApiProvider, HeldPrice, Price, ServedModel
from catalog.pricing import hosted_checks, sync
from catalog.pricing.current import standing
from catalog.pricing.sources import SOURCES, Download
from tests.clocks import TODAY

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent / "price_samples"
DAY = "2026-11-18"
GIB = {path.stem: fixtures.read_yaml(path)["memory"]["gib"] for path in (ROOT / "fixtures/accelerators").glob("*.yaml")}
CATALOG = names.Catalog(gib=GIB, instances=dict(azure.KNOWN))
MODELS = [
    ("meta-llama/Llama-3.3-70B-Instruct", "llama-3-3-70b"),
    ("zai-org/GLM-5", "glm-5"),
    ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ("Qwen/Qwen3-32B", "qwen3-32b"),
]
Reader = Callable[[str, Path, Account], Iterator[Offer]]


def by_path(read: Callable[[Path, Account], Iterator[Offer]]) -> Reader:
    def reader(text: str, folder: Path, account: Account) -> Iterator[Offer]:
        path = folder / "feed"
        path.write_text(text)
        return read(path, account)

    return reader


READERS: dict[str, tuple[str, str, Reader]] = {  # by file: the list of its rows, and how it is read
    "azure.json": ("Items", "azure", lambda text, _, account: azure.read(text, CATALOG, DAY, account)),
    "azure_reservations.json": ("Items", "azure", lambda text, _, account: azure.read(text, CATALOG, DAY, account)),
    "aws_price_list.json": ("products", "aws", lambda text, _, account: aws.read(text, CATALOG, DAY, account)),
    "aws_spot.json": ("SpotPriceHistory", "aws-spot", lambda text, _, acc: aws.read_spot(text, CATALOG, DAY, acc)),
    "gcp_skus.json": ("skus", "gcp", lambda text, _, account: gcp.read(text, CATALOG, DAY, account)),
    "gcp_tpu.json": ("skus", "gcp", lambda text, _, account: gcp.read(text, CATALOG, DAY, account)),
    "gcp_skus_more.json": ("skus", "gcp", lambda text, _, account: gcp.read(text, CATALOG, DAY, account)),
    "gpu_price_index.csv": (
        "", "gpu-price-index", lambda text, _, account: gpu_price_index.read(text, CATALOG, DAY, account),
    ),
    "skypilot_nebius.csv": (
        "", "skypilot", by_path(lambda path, account: skypilot.read(path, "nebius", CATALOG, DAY, account)),
    ),
    "skypilot_gcp.csv": (
        "", "skypilot", by_path(lambda path, account: skypilot.read(path, "gcp", CATALOG, DAY, account)),
    ),
    "gpuhunt_vastai.csv": (
        "", "gpuhunt", by_path(lambda path, account: gpuhunt.read(path, "vast-ai", CATALOG, DAY, account)),
    ),
    "openrouter_models.json": (
        "data", "openrouter", lambda text, _, account: openrouter.read(text, hosted.models(MODELS), DAY, account),
    ),
    "litellm.json": (
        "*", "litellm", by_path(lambda path, account: litellm.read(path, hosted.models(MODELS), DAY, account)),
    ),
}  # fmt: skip


LETTERS = st.text("abcdefghjkmnqrtwxyz", min_size=3, max_size=6)
NEW_NAMES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {  # by file: where the name stands, and the change
    "azure.json": ("Standard_N{0}96{0}_v9", lambda name: {"armSkuName": name}),
    "aws_price_list.json": (
        "{0}9.48xlarge",
        lambda name: {
            "attributes": {
                "instanceType": name, "gpu": "8", "regionCode": "us-east-1", "operatingSystem": "Linux",
                "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA",
            },
        },
    ),
    "aws_spot.json": ("p9{0}.48xlarge", lambda name: {"InstanceType": name}),
    "gcp_tpu.json": ("Tpu{0}", lambda name: {"description": f"{name} running in Iowa"}),
    "gpu_price_index.csv": ("Chip{0}", lambda name: {"gpu_model": name, "sku": name}),
    "skypilot_nebius.csv": ("Chip{0}", lambda name: {"AcceleratorName": name, "AcceleratorCount": "8.0"}),
    "gpuhunt_vastai.csv": ("Chip{0}", lambda name: {"gpu_name": name, "gpu_count": "8"}),
}  # fmt: skip


@pytest.mark.parametrize("file", NEW_NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=LETTERS, place=st.integers(0, 40))
def test_what_nobody_has_heard_of_is_counted_and_named(file: str, word: str, place: int, tmp_path: Path) -> None:
    form, change = NEW_NAMES[file]
    name, rows = form.format(word), rows_in(file)
    place %= len(rows)
    key, given_row = rows[place] if isinstance(rows[place], tuple) else (None, rows[place])
    rows[place] = (key, given_row | change(name)) if key is not None else given_row | change(name)
    account = Account()
    list(READERS[file][2](text_of(file, rows), tmp_path, account))
    assert any(name in lacking for lacking in account.proposed), account.proposed


def rows_in(file: str) -> list[Any]:
    """The rows of a sample: dictionaries, or pairs of a key and one."""
    text, listed = (SAMPLES / file).read_text(), READERS[file][0]
    if not listed:
        return list(csv.DictReader(StringIO(text)))
    document = json.loads(text)
    rows = document if listed == "*" else document[listed]
    return list(rows.items()) if isinstance(rows, dict) else rows


def text_of(file: str, rows: list[Any]) -> str:
    """A document of the sample's form with these rows."""
    original, listed = (SAMPLES / file).read_text(), READERS[file][0]
    if not listed:
        out = StringIO()
        writer = csv.DictWriter(out, csv.DictReader(StringIO(original)).fieldnames or ())
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    document = json.loads(original)
    content = dict(rows) if listed in ("*", "products") else rows
    return json.dumps(content if listed == "*" else document | {listed: content})


BROKEN = st.sampled_from(["", "x", "-1", "0", "1e400", "NaN", "inf", "Tesla 9000", "2026-02-30", "8", "0.5"])


def mutated(row: Any, name: int, value: str) -> Any:
    """The row with another value in one of its fields."""
    key, fields = row if isinstance(row, tuple) else (None, row)
    field = sorted(fields)[name % len(fields)]
    return (key, fields | {field: value}) if key is not None else fields | {field: value}


@pytest.mark.parametrize("file", READERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_row_makes_an_offer_or_is_skipped_for_a_reason(file: str, data: st.DataObject, tmp_path: Path) -> None:
    rows = data.draw(st.lists(st.sampled_from(rows_in(file)), max_size=12))
    changes = data.draw(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30), BROKEN), max_size=6))
    for place, name, value in changes:
        if place < len(rows):
            rows[place] = mutated(rows[place], name, value)
    text = text_of(file, rows)
    account = Account()
    offers = list(READERS[file][2](text, tmp_path, account))
    used = {number for offer in offers for number in offer.rows}
    assert account.read == (len(dict(rows)) if READERS[file][0] in ("*", "products") else len(rows))
    assert account.read == len(used) + sum(account.skipped.values())
    assert all(offer.rows for offer in offers) and all(count > 0 for count in account.skipped.values())


@pytest.fixture
def catalog(db: None) -> None:
    for slug, gib in GIB.items():
        Accelerator.objects.create(
            slug=slug, name=slug, vendor="v", family="f", kind="gpu", memory_gib=gib, memory_gb_per_s=1,
            as_of="2026-01-01",
        )  # fmt: skip
    for hf_id, slug in MODELS:
        ServedModel.objects.create(
            hf_id=hf_id, slug=slug, family="f", shape={}, as_of="2026-01-01", native_dtype="bf16", max_context_tokens=1
        )


def synced(source: str, file: Path, *args: str) -> dict[str, Any]:
    out = StringIO()
    call_command("prices", "sync", "--from", source, "--file", str(file), "--json", *args, stdout=out)
    done: dict[str, Any] = json.loads(out.getvalue())["sources"][0]
    assert not done["error"]
    found = done["added"] + done["changed_prices"] + done["confirmed"] + done["held"]
    assert done["read"] == found + sum(done["skipped"].values())
    return done


@pytest.mark.parametrize("file", READERS)
def test_a_second_sync_of_the_same_file_gives_nothing_new(catalog: None, file: str) -> None:
    cloud = ("--cloud", file.split("_")[1].removesuffix(".csv")) if READERS[file][1] in ("skypilot", "gpuhunt") else ()
    arguments = (READERS[file][1], SAMPLES / file, "--as-of", DAY, *cloud)
    first = synced(*arguments)
    stored = Price.objects.count() + ApiPrice.objects.count()
    again = synced(*arguments)
    assert first["read"] == again["read"] == len(rows_in(file))
    assert (again["added"], again["changed_prices"], again["held"]) == (0, 0, first["held"])
    assert Price.objects.count() + ApiPrice.objects.count() == stored


@pytest.mark.parametrize("file", READERS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), BROKEN), min_size=1, max_size=8))
def test_a_sync_accounts_for_broken_rows_too(catalog: None, file: str, changes: list[Any], tmp_path: Path) -> None:
    rows = rows_in(file)
    for place, name, value in changes:
        rows[place % len(rows)] = mutated(rows[place % len(rows)], name, value)
    broken = tmp_path / file
    broken.write_text(text_of(file, rows))
    cloud = ("--cloud", file.split("_")[1].removesuffix(".csv")) if READERS[file][1] in ("skypilot", "gpuhunt") else ()
    with transaction.atomic():
        assert synced(READERS[file][1], broken, "--as-of", DAY, *cloud)["read"] == len(rows)
        transaction.set_rollback(True)


def test_hosts_of_a_marketplace_become_one_median_of_at_least_ten(catalog: None) -> None:
    synced("gpuhunt", SAMPLES / "gpuhunt_vastai.csv", "--as-of", DAY)
    rows = Price.objects.all()
    assert {(row.provider, row.kind, row.origin, row.instance) for row in rows} == {
        ("vast-ai", "marketplace", "marketplace", gpuhunt.MEDIAN)
    }
    assert {row.accelerator.slug for row in rows} == {"rtx-pro-6000-blackwell-server", "h200-nvl"}
    assert all(f"median of {gpuhunt.MIN_OFFERS}" in row.notes or "median of 1" in row.notes for row in rows)


def test_a_shipped_median_of_few_offers_is_a_level_that_nothing_rests_on() -> None:
    said = re.compile(r"(?:median of|about) (\d+)(?: verified)? offers")
    few = [
        row
        for path in (ROOT / "fixtures/prices").glob("*.csv")
        for row in fixtures.prices(path)
        if row["origin"] == "marketplace"
        and (found := said.search(row["instance"]))
        and int(found[1]) < gpuhunt.MIN_OFFERS
    ]
    assert few and {row["confidence"] for row in few} == {"low"}


@pytest.mark.parametrize("file", READERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_order_of_rows_and_copies_of_them_do_not_matter(file: str, data: st.DataObject, tmp_path: Path) -> None:
    rows = rows_in(file)
    if READERS[file][0] in ("*", "products"):  # keys of an object: no copies
        shuffled = data.draw(st.permutations(rows))
    else:
        shuffled = data.draw(st.permutations([*rows, *data.draw(st.lists(st.sampled_from(rows), max_size=5))]))

    def read(given_rows: list[Any]) -> set[str]:
        offers = READERS[file][2](text_of(file, given_rows), tmp_path, Account())
        return {json.dumps(offer, sort_keys=True) for offer in offers}

    assert read(rows) == read(list(shuffled))


@pytest.mark.parametrize(("file", "price"), [("azure.json", "retailPrice"), ("gpuhunt_vastai.csv", "price")])
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_prices_of_one_offer_the_lower_one_counts(file: str, price: str, turned: bool, tmp_path: Path) -> None:
    rows = rows_in(file)
    dearer = [row | {price: float(row[price]) * 1.5} for row in rows]
    given_rows = [*dearer, *rows] if turned else [*rows, *dearer]
    found = [list(READERS[file][2](text_of(file, each), tmp_path, Account())) for each in (rows, given_rows)]
    assert sorted(map(str, found[0])) == sorted(map(str, found[1]))


def test_a_file_of_one_cloud_names_it_by_its_folder_or_is_refused(catalog: None, tmp_path: Path) -> None:
    text = (SAMPLES / "skypilot_nebius.csv").read_text()
    for folder, provider in (("nebius", "nebius"), ("moon", None)):
        file = tmp_path / folder / "vms.csv"
        file.parent.mkdir()
        file.write_text(text)
        if provider is None:
            with pytest.raises(Exception, match="does not say which cloud"):
                synced("skypilot", file)
        else:
            synced("skypilot", file)
            assert set(Price.objects.values_list("provider", flat=True)) == {provider}
    with pytest.raises(Exception, match="no cloud 'vms'"):
        synced("skypilot", tmp_path / "moon/vms.csv", "--cloud", "vms")


def test_a_file_is_dated_by_its_name_or_its_content(catalog: None, tmp_path: Path) -> None:
    file = tmp_path / "azure_2026-08-22.json"
    file.write_text((SAMPLES / "azure.json").read_text())
    assert synced("azure", file)["as_of"] == "2026-08-22"
    undated = tmp_path / "azure.json"
    items = json.loads(file.read_text())
    items["Items"][0]["effectiveStartDate"] = "2026-07-01T00:00:00Z"
    undated.write_text(json.dumps(items))
    assert synced("azure", undated)["as_of"] == "2026-07-01"


def hosted_row(name: str, as_of: date, usd: float = 0.12, **rest: Any) -> ApiPrice:
    model = ServedModel.objects.get(slug="llama-3-3-70b")
    given = {"provider": "hyperbolic", "usd_per_mtok_input": usd, "usd_per_mtok_output": usd, "source": "list"}
    return ApiPrice.objects.create(**{**given, **rest}, model=model, name=name, as_of=as_of)


def read_litellm(day: date, usd: float = 0.12, key: str = "hyperbolic/meta-llama/Llama-3.3-70B-Instruct") -> sync.Read:
    entry = {
        "litellm_provider": key.split("/")[0],
        "input_cost_per_token": usd * 1e-6,
        "output_cost_per_token": usd * 1e-6,
    }
    answer = Download(texts={"x": json.dumps({key: {**entry, "mode": "chat"}})}, as_of=day.isoformat())
    return sync.add(SOURCES["litellm"], answer, "ann", day)


def test_a_withdrawn_model_stays_withdrawn_until_a_list_of_what_is_offered_has_it_again(catalog: None) -> None:
    gone = TODAY - timedelta(days=150)
    hosted_row("meta-llama/Llama-3.3-70B-Instruct", TODAY - timedelta(days=30), withdrawn=gone)
    assert read_litellm(TODAY).skipped == {"withdrawn by the provider, and this list keeps what is gone": 1}
    other_name = read_litellm(TODAY, key="hyperbolic/llama-3.3-70b")
    assert list(other_name.skipped) == ["withdrawn by the provider, and this list keeps what is gone"]
    assert read_litellm(TODAY, usd=0.2).held == 1 and ApiPrice.objects.count() == 1
    ApiPrice.objects.update(provider="openrouter")
    entry = {"id": "meta-llama/llama-3.3-70b-instruct", "pricing": {"prompt": "1.2e-7", "completion": "1.2e-7"}}
    for day, added in ((gone, 0), (TODAY, 1)):
        answer = Download(texts={"x": json.dumps({"data": [entry]})}, as_of=day.isoformat())
        done = sync.add(SOURCES["openrouter"], answer, "ann", day)
        assert done.added + done.changed_prices + done.confirmed == added
    assert ApiPrice.objects.order_by("-as_of")[0].withdrawn is None


def test_other_models_of_a_provider_that_withdrew_everything_stay_away_too(catalog: None) -> None:
    hosted_row("meta-llama/Llama-3.3-70B-Instruct", TODAY - timedelta(days=30), withdrawn=TODAY - timedelta(days=150))
    other = next(hf_id for hf_id, slug in MODELS if slug != "llama-3-3-70b")
    assert read_litellm(TODAY, key=f"hyperbolic/{other}").held == 1 and ApiPrice.objects.count() == 1
    left = ApiProvider.objects.create(slug="hyperbolic", name="H", as_of=TODAY, withdrawn=TODAY - timedelta(days=150))
    assert read_litellm(TODAY, key=f"hyperbolic/{other}").skipped == {
        "the provider stopped selling API access per token": 1
    }
    left.delete()
    HeldPrice.objects.all().delete()
    hosted_row("meta-llama/another", TODAY - timedelta(days=30))
    assert read_litellm(TODAY, key=f"hyperbolic/{other}").added == 1


@pytest.mark.parametrize("key", ["anyscale/meta-llama/Llama-3.3-70B-Instruct", "anyscale/openai/gpt-oss-120b"])
def test_a_provider_that_left_is_known_without_a_price_of_it(catalog: None, key: str) -> None:
    for row in fixtures.listed(ROOT / "fixtures/api_providers.yaml", fixtures.api_provider):
        ApiProvider.objects.create(**row)
    assert list(read_litellm(TODAY, key=key).skipped) == ["the provider stopped selling API access per token"]
    assert not ApiPrice.objects.exists() and not HeldPrice.objects.exists()


def test_speed_quantization_and_hardware_survive_a_refresh_under_another_spelling(catalog: None) -> None:
    hosted_row(
        "meta-llama/llama-3.3-70b-instruct", TODAY - timedelta(days=30), provider="nebius", quantization="fp8",
        hardware="h200-sxm",
        output_tokens_per_s=40.0, speed_kind="measured", speed_source="s", speed_as_of=TODAY,
    )  # fmt: skip
    done = read_litellm(TODAY, 0.13, "nebius/meta-llama/Llama-3.3-70B-Instruct")
    new = ApiPrice.objects.order_by("-as_of")[0]
    assert (done.added, done.changed_prices, ApiPrice.objects.count()) == (0, 1, 2)
    assert (new.name, new.quantization, new.output_tokens_per_s) == ("meta-llama/llama-3.3-70b-instruct", "fp8", 40.0)
    assert new.hardware == "h200-sxm"


def test_import_prices_holds_what_a_sync_would_hold(catalog: None, tmp_path: Path) -> None:
    for place in range(4):
        hosted_row("Llama-3.3-70B-Instruct", TODAY, provider=f"p{place}")
    entry = {"litellm_provider": "nebius", "input_cost_per_token": 1e-4, "output_cost_per_token": 1e-4}
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"nebius/meta-llama/Llama-3.3-70B-Instruct": entry}))
    out = StringIO()
    call_command("import_prices", file, "--from", "litellm", stdout=out)
    assert "prices: 0 created" in out.getvalue() and "held " in out.getvalue()
    assert HeldPrice.objects.count() == 1 and ApiPrice.objects.count() == 4


def test_no_shipped_speed_is_far_from_those_of_other_providers(db: None) -> None:
    chips = {
        path.stem: fixtures.read_yaml(path)["bought_as"] for path in (ROOT / "fixtures/accelerators").glob("*.yaml")
    }
    rows = [row for row in fixtures.api_prices(ROOT / "fixtures/api_prices.csv") if row.get("output_tokens_per_s")]
    assert {row["hardware"] for row in rows if row.get("hardware")} <= chips.keys()
    for slug in ("groq-lpu", "cerebras-wse-3", "sambanova-sn40l"):
        Accelerator.objects.create(
            slug=slug, name=slug, vendor=slug.split("-")[0], family="f", kind="npu", memory_gib=1, memory_gb_per_s=1,
            as_of="2026-01-01", bought_as=chips[slug],
        )  # fmt: skip
    of_model: dict[str, list[hosted_checks.Hosted]] = {}
    for row in rows:
        speed = hosted_checks.Hosted(provider=row["provider"], usd_per_mtok={}, tokens_per_s=row["output_tokens_per_s"])
        of_model.setdefault(row["model"], []).append(speed)
    for row in rows:
        others = [each for each in of_model[row["model"]] if each.provider != row["provider"]]
        assert hosted_checks.speed_suspicion(row, others) == "", (row["provider"], row["name"])


@pytest.mark.parametrize("suffix", ["-turbo", "-code", "-air", "-fast", "v-turbo", ".1", "-0905", "-distill-qwen-32b"])
@pytest.mark.parametrize("hf_id", [hf_id for hf_id, _ in MODELS])
def test_a_variant_of_a_model_is_another_model(hf_id: str, suffix: str) -> None:
    known = hosted.models(MODELS)
    assert known.slug("p", hf_id.lower()) == dict(MODELS)[hf_id]
    assert known.slug("p", hf_id.lower() + suffix) is None


@pytest.mark.parametrize(
    ("key", "slug"),
    [
        ("accounts/fireworks/models/llama-v3p3-70b-instruct", None),
        ("meta.llama3-3-70b-instruct-v1:0", "llama-3-3-70b"),
        ("us.meta.llama3-3-70b-instruct-v1:0", "llama-3-3-70b"),
        ("databricks-meta-llama-3-3-70b-instruct", "llama-3-3-70b"),
        ("Meta-Llama-3_3-70B-Instruct", "llama-3-3-70b"),
        ("FW-GLM-5", "glm-5"),
        ("zai.glm-5", "glm-5"),
        ("qwen.qwen3-32b-v1:0", "qwen3-32b"),
        ("gpt-oss-120b-maas", "gpt-oss-120b"),
    ],
)
def test_spellings_of_one_model(key: str, slug: str | None) -> None:
    assert hosted.models(MODELS).slug("p", key) == slug


def test_far_prices_speeds_and_jumps_of_hosted_models_wait_for_a_person(catalog: None) -> None:
    for place in range(4):
        hosted_row(
            "Llama-3.3-70B-Instruct", TODAY, provider=f"p{place}", output_tokens_per_s=50.0, speed_kind="measured",
            speed_source="s", speed_as_of=TODAY,
        )  # fmt: skip
    assert read_litellm(TODAY, 12.0).held == 1
    hosted_row("meta-llama/Llama-3.3-70B-Instruct", TODAY - timedelta(days=9), 0.5, provider="nebius")
    assert read_litellm(TODAY, 0.05, "nebius/meta-llama/Llama-3.3-70B-Instruct").held == 1
    slow = ApiPrice.objects.filter(provider="p3")
    slow.update(output_tokens_per_s=1.0)
    out = StringIO()
    call_command("prices", "check", stdout=out)
    assert "p3 Llama-3.3-70B-Instruct: has a published speed of 1 tokens/s" in out.getvalue()


def machine(as_of: date, usd: str = "2.00", **rest: str) -> dict[str, str]:
    row = {
        "provider": "nebius", "instance": "gpu-h100", "accelerator": "h100-sxm", "accelerators": "1", "region": "eu",
        "vcpus": "", "host_memory_gib": "", "term": "on_demand", "usd_per_hour": usd, "purchase_usd": "", "kind": "vm",
        "as_of": as_of.isoformat(), "source": "list", "notes": "",
    }  # fmt: skip
    return row | rest


def stored(*rows: dict[str, str]) -> sync.Read:
    made = [Offer(row) for row in rows]
    for number, offer in enumerate(made):
        offer.rows = (number,)

    def read(name: str, text: str, as_of: str, account: Account) -> list[Offer]:
        account.read += len(made)
        return made

    source = sync.Source(name="azure", title="t", download=lambda opened, etags: Download(texts={}), rows=read)
    return sync.add(source, Download(texts={"x": "x"}), "ann", TODAY)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("10.4926", "10.492640", True),
        ("3.67", "3.673", True),
        ("4", "4.4", False),
        ("0.09", "0.1", False),
        ("2", "2.001", True),
    ],
)
def test_a_rounded_price_is_the_same_price(catalog: None, old: str, new: str, same: bool) -> None:
    stored(machine(TODAY - timedelta(days=9), old))
    done = stored(machine(TODAY, new))
    assert (done.changed_prices, done.confirmed) == ((0, 1) if same else (1, 0))


def test_one_price_in_many_regions_is_held_and_released_once(catalog: None) -> None:
    stored(*(machine(TODAY, "30", provider=f"p{place}", accelerators="8") for place in range(4)))
    many = [machine(TODAY, "3", accelerators="8", region=f"r{place}") for place in range(17)]
    assert stored(*many).held == 17 and HeldPrice.objects.count() == 1
    assert stored(*many).held == 17 and HeldPrice.objects.count() == 1
    call_command("prices", "release", str(HeldPrice.objects.get().pk))
    assert Price.objects.filter(provider="nebius").count() == 17
    assert stored(*many).skipped == {"the catalog has a price of the same day": 17}


def test_a_newer_reading_per_chip_makes_every_older_instance_of_the_seller_old(catalog: None) -> None:
    listed = {"smallest_unit_accelerators": "1", "smallest_unit_source": "list"}
    for place, (instance, chips) in enumerate((("gpu-h100-1", "1"), ("gpu-h100-8", "8"))):
        stored(machine(TODAY - timedelta(days=3 + place), "2.95", instance=instance, accelerators=chips))
    stored(machine(TODAY, "4.50", instance="HGX H100 (per GPU)", region="any", **listed))
    left = standing(Price.objects.all(), TODAY)
    assert [row.instance for row in left] == ["HGX H100 (per GPU)"]


def test_every_chip_name_of_the_samples_and_collections_is_told_apart() -> None:
    for line in csv.DictReader(StringIO((SAMPLES / "chip_names.csv").read_text())):
        gib = float(line["gib"]) if line["gib"] else None
        assert names.accelerator(line["name"], GIB, gib)[0] == (line["accelerator"] or None), line


@pytest.mark.parametrize("slug", GIB)
def test_every_chip_of_the_catalog_is_found_by_its_own_name(slug: str) -> None:
    for name in (slug, slug.upper().replace("-", " "), slug.replace("-", "_")):
        assert names.accelerator(name, GIB)[0] == slug
    shown = fixtures.read_yaml(ROOT / f"fixtures/accelerators/{slug}.yaml")["name"]
    assert names.accelerator(shown, GIB)[0] in (slug, None)


def test_status_shows_the_newest_dates_and_what_a_feed_lists_and_the_catalog_lacks(catalog: None) -> None:
    stored(machine(TODAY - timedelta(days=3)))
    synced("gpuhunt", SAMPLES / "gpuhunt_vastai.csv", "--as-of", DAY)
    out = StringIO()
    call_command("status", "--json", stdout=out)
    found = json.loads(out.getvalue())
    kinds = {kind["name"]: kind for kind in found["kinds"]}
    assert kinds["prices"]["newest"] == str(TODAY - timedelta(days=3))
    assert kinds["models"]["newest"] == "2026-01-01" and kinds["models"]["rows"] == len(MODELS)
    assert "CMP170HX" in found["lacking"]["gpuhunt"]
    table = StringIO()
    call_command("status", stdout=table)
    assert "listed by gpuhunt: CMP170HX" in table.getvalue()
