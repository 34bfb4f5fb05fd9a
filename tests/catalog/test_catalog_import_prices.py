"""Price lists of others become dated offers; what is not known is counted, never guessed."""

import json
import sys
from decimal import Decimal
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from catalog.importers.prices import names
from catalog.models import Accelerator, ApiPrice, Price, ServedModel

pytestmark = pytest.mark.django_db
VMS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
GCP = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
HUNT = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data\n"
)


GIB = {
    **{"h100-sxm": 79.65, "a100-40gb-sxm": 40, "a100-80gb-sxm": 80, "t4": 15, "v100-16gb-sxm": 16, "v100-32gb-sxm": 32},
    **{"tpu-v5e": 16, "tpu-v5p": 95, "tpu-v6e": 32, "rtx-4090": 23.99},
}


@pytest.fixture(autouse=True)
def chips(db):
    for slug, gib in GIB.items():
        Accelerator.objects.create(
            slug=slug,
            name=slug,
            vendor="v",
            family="f",
            kind="gpu",
            memory_gib=gib,
            memory_gb_per_s=1,
            as_of="2026-01-01",
        )


def run(form, path, **options):
    out = StringIO()
    call_command("import_prices", path, "--from", form, "--as-of", "2026-03-01", stdout=out, **options)
    return out.getvalue().splitlines()


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def offers():
    return {(price.instance, price.term): price.usd_per_hour for price in Price.objects.all()}


def test_skypilot_takes_the_cheapest_zone(tmp_path):
    text = VMS + (
        "p5.48xlarge,H100,8,192,2048,{},55.04,30.0,us-east-1,a\np5.48xlarge,H100,8,192,2048,{},55.04,25.0,us-east-1,b\n"
    )
    run("skypilot", write(tmp_path, "aws/vms.csv", text))
    assert offers() == {("p5.48xlarge", "on_demand"): Decimal("55.04"), ("p5.48xlarge", "spot"): Decimal(25)}
    price = Price.objects.first()
    assert (price.provider, price.accelerators, price.notes) == ("aws", 8, names.ASSUMED_NOTE)


def test_a_spot_price_that_is_no_discount_is_left_out(tmp_path):
    run("skypilot", write(tmp_path, "aws/vms.csv", VMS + "p4d,A100,8,96,1152,{},21.96,21.96,us-east-1,a\n"))
    assert set(offers()) == {("p4d", "on_demand")}


def test_an_offer_of_capacity_blocks_alone_has_no_price(tmp_path):
    run("skypilot", write(tmp_path, "aws/vms.csv", VMS + "p5e.48xlarge,H100,8,192,2048,{},,,us-east-1,a\n"))
    assert not offers()


def test_gcp_adds_the_host_to_the_accelerator_but_not_to_a_tpu(tmp_path):
    text = GCP + (
        "a2-highgpu-1g,12,85,,,,us-central1,a,0.739,0.3\n"
        ",,,A100,1,{},us-central1,a,2.934,0.88\n"
        ",,,T4,1,{},us-central1,a,0.35,0.1\n"
        ",,,tpu-v5litepod-8,1,{},us-central1,a,9.6,3.2\n"
    )
    lines = run("skypilot", write(tmp_path, "gcp/vms.csv", text))
    assert offers() == {
        ("a2-highgpu-1g", "on_demand"): Decimal("3.673"),
        ("a2-highgpu-1g", "spot"): Decimal("1.18"),
        ("v5litepod-8", "on_demand"): Decimal("9.6"),
        ("v5litepod-8", "spot"): Decimal("3.2"),
    }
    assert Price.objects.filter(accelerator__slug="tpu-v5e", accelerators=8).count() == 2
    assert "skipped 1: no matching GCP host" in lines


def test_what_the_catalog_does_not_know_is_counted(tmp_path):
    lines = run("skypilot", write(tmp_path, "aws/vms.csv", VMS + "x,Q7000,1,4,8,{},1,0.5,us-east-1,a\n"))
    assert lines == [
        "prices: 0 created, 0 changed, 0 unchanged",
        "skipped 1: no accelerator 'Q7000' in the catalog",
    ]


def test_importing_twice_changes_nothing(tmp_path):
    path = write(tmp_path, "aws/vms.csv", VMS + "p5,H100,8,192,2048,{},55.04,,us-east-1,a\n")
    run("skypilot", path)
    assert run("skypilot", path)[0] == "prices: 0 created, 0 changed, 1 unchanged"


def test_gpuhunt_tells_the_sizes_of_one_name_apart(tmp_path):
    text = HUNT + (
        "one,eu,1.10,8,64,1,A100,40.0,False,,nvidia,,,\n"
        "two,eu,1.60,8,64,1,A100,80.0,True,,nvidia,,,\n"
        "none,eu,0.10,8,64,0,,,False,,,,,\n"
    )
    run("gpuhunt", write(tmp_path, "lambdalabs.csv", text))
    assert set(Price.objects.values_list("provider", "instance", "accelerator__slug", "term")) == {
        ("lambda", "one", "a100-40gb-sxm", "on_demand"),
        ("lambda", "two", "a100-80gb-sxm", "spot"),
    }


def test_litellm_prices_models_of_the_catalog_by_the_million_tokens(tmp_path):
    ServedModel.objects.create(
        slug="llama",
        hf_id="meta-llama/Llama-3.3-70B-Instruct",
        family="f",
        native_dtype="bf16",
        shape={},
        as_of="2026-01-01",
    )
    given = {
        "fireworks_ai/accounts/fireworks/models/llama-v3p3-70b-instruct": {"litellm_provider": "fireworks_ai"},
        "deepinfra/meta-llama/Llama-3.3-70B-Instruct": {
            "litellm_provider": "deepinfra", "input_cost_per_token": 2.3e-7, "output_cost_per_token": 4e-7,
        },
        "gpt-nobody": {"litellm_provider": "x", "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6},
    }  # fmt: skip
    lines = run("litellm", write(tmp_path, "prices.json", json.dumps(given)))
    price = ApiPrice.objects.get()
    assert (price.provider, price.model.slug) == ("deepinfra", "llama")
    assert (price.usd_per_mtok_input, price.usd_per_mtok_output) == (Decimal("0.23"), Decimal("0.4"))
    assert "skipped 2: model not in the catalog" in lines


def test_a_file_of_another_form_is_refused(tmp_path):
    with pytest.raises(CommandError, match="is missing"):
        run("gpuhunt", write(tmp_path, "aws.csv", VMS + "p5,H100,8,192,2048,{},55.04,,us-east-1,a\n"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CommandError, match="No such file"):
        run("csv", tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "memory_gib", "slug"),
    [
        ("H100", None, "h100-sxm"),
        ("A100", 80, "a100-80gb-sxm"),
        ("A100-80GB", None, "a100-80gb-sxm"),
        ("RTX 4090", None, "rtx-4090"),
        ("tpu-v6e-4", None, "tpu-v6e"),
        ("tpu-v5p-8", None, "tpu-v5p"),
        ("V100", 32, "v100-32gb-sxm"),
        ("Banana", None, None),
    ],
)
def test_a_name_means_one_chip_or_none(name, memory_gib, slug):
    assert names.accelerator(name, GIB, memory_gib)[0] == slug


@pytest.mark.parametrize(
    ("name", "chips"), [("tpu-v5litepod-8", 8), ("tpu-v6e-4", 4), ("tpu-v4-8", 4), ("tpu-v5p-8", 4), ("H100", 1)]
)
def test_a_slice_is_counted_in_chips(name, chips):
    assert names.slice_chips(name) == chips


def test_a_line_that_cannot_be_read_is_named_and_the_others_are_taken(tmp_path):
    lines = "a,H100,8,192,2048,{},much,,us,a\nb,H100,8,192,2048,{},55.0,,us,a\n"
    said = run("skypilot", write(tmp_path, "aws/vms.csv", VMS + lines))
    assert set(offers()) == {("b", "on_demand")}
    assert any(line.startswith("skipped 1: line 2:") and "much" in line for line in said)
    hunt = "a,us,x,8,64,1,H100,80,False,,nvidia,,,\nb,us,2.5,8,64,1,H100,80,False,,nvidia,,,\n"
    said = run("gpuhunt", write(tmp_path, "moon.csv", HUNT + hunt))
    assert any(line.startswith("skipped 1: line 2:") for line in said)
    assert Price.objects.filter(provider="moon").count() == 1


def test_a_dry_run_shows_the_difference_and_keeps_nothing(tmp_path):
    path = write(tmp_path, "aws/vms.csv", VMS + "p5,H100,8,192,2048,{},50.0,,us,a\n")
    run("skypilot", path)
    path.write_text(VMS + "p5,H100,8,192,2048,{},40.0,,us,a\nq5,H100,8,192,2048,{},60.0,,us,a\n")
    out = StringIO()
    call_command("import_prices", path, "--from", "skypilot", "--as-of", "2026-04-01", "--dry-run", stdout=out)
    said = out.getvalue().splitlines()
    assert "~ aws p5 us h100-sxm x8 on_demand: $50.00 -> $40.00" in said
    assert "+ aws q5 us h100-sxm x8 on_demand: $60.00" in said
    assert offers() == {("p5", "on_demand"): Decimal(50)}


def test_the_live_catalog_is_asked_where_gpuhunt_is_installed(monkeypatch):
    item = SimpleNamespace(instance_name="m1", location="us", price=2.5, cpu=8, memory=64, spot=False)
    item.gpu_count, item.gpu_name, item.gpu_memory = 1, "H100", 80
    monkeypatch.setitem(sys.modules, "gpuhunt", SimpleNamespace(query=lambda provider: [item]))
    run("gpuhunt", "live", provider="moon")
    assert offers() == {("m1", "on_demand"): Decimal("2.5")}


def test_without_gpuhunt_a_live_import_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(CommandError, match="not installed"):
        run("gpuhunt", "live", provider="moon")
