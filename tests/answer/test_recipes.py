"""Follows each recipe of CONTRIBUTING.md literally, in a copy of the reference data, and asks for advice."""

import ast
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from advisor import workload
from advisor.answer.options import launch_flags
from advisor.engine.terms import efficiency
from advisor.engine.training import MEGATRON, MEGATRON_BF16, rates_of
from advisor.inputs import catalog_resources
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from catalog.loading import fixtures as fixture_files
from tests.as_json import recommend
from tests.catalog import test_fixtures as shipped_files

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^ *```(?:yaml|csv|text) (fixtures/\S+)\n(.*?)^ *```", re.M | re.S)
RECIPES = re.split(r"(?m)^### ", (ROOT / "CONTRIBUTING.md").read_text().split("## Changing the code")[0])[1:]
BY_TITLE = {recipe.splitlines()[0]: recipe for recipe in RECIPES}
QUESTION = """
model: {model}
prices_as_of: 2026-11-22
traffic: {{input_tokens: 500, output_tokens: 100, requests_per_s: 2, prefix_cache_hit_rate: 0.2}}
constraints: {{quality: near_lossless, acquisition: [rent], {more}}}
tco: {{operator-usd-per-year: 0}}
variants: no
"""


def follow(recipe: str, fixtures: Path) -> None:
    """Writes every file that the recipe shows; one that is there grows by the example."""
    for name, text in BLOCK.findall(recipe):
        path = fixtures.parent / name
        there = path.read_text() if path.exists() else ""
        path.write_text(there + textwrap.dedent(text))


def listed(path: Path, key: str, entry: str) -> None:
    """Adds an entry to a list of a framework's file."""
    text = path.read_text()
    changed = re.sub(rf"(?m)^(  {key}: \[.*)\]$", rf"\1, {entry}]", text, count=1)
    assert changed != text
    path.write_text(changed)


def copied(folder: Path) -> Path:
    left_out = shutil.ignore_patterns("fidelity", "workloads", "measurements")
    return Path(shutil.copytree(ROOT / "fixtures", folder / "fixtures", ignore=left_out))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any) -> Iterator[Path]:
    """The reference data after all recipes, loaded."""
    fixtures = copied(tmp_path_factory.mktemp("recipes"))
    for recipe in RECIPES:
        follow(recipe, fixtures)
    vllm = fixtures / "frameworks" / "vllm.yaml"
    listed(vllm, "stacks", "acme-runtime")
    listed(vllm, "vendors", "acme")
    listed(vllm, "kinds", "npu")
    text = vllm.read_text()
    vllm.write_text(text.replace("- formats: [bf16, fp16, fp32]\n", "- formats: [bf16, fp16, fp32, acme-w6]\n"))
    with django_db_blocker.unblock(), transaction.atomic():
        call_command("load_catalog", fixtures, verbosity=0, no_scores=True)
        yield fixtures
        transaction.set_rollback(True)


pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("followed")]


def advice(model: str = "meta-llama/Llama-3.2-1B", **allowed: str) -> dict[str, Any]:
    more = ", ".join(f"{key}: {{allow: [{slug}]}}" for key, slug in allowed.items())
    spec = workload.parse(QUESTION.format(model=model, more=more))
    check_catalog(spec)
    return recommend(spec, take_snapshot(spec))


def test_every_recipe_shows_the_files_that_it_adds() -> None:
    added = {title: [name for name, _ in BLOCK.findall(recipe)] for title, recipe in BY_TITLE.items()}
    assert list(added) == [
        "A new accelerator",
        "A new model",
        "A new framework, or a new version",
        "A new quantization method",
        "A price",
        "A region",
    ]
    assert all(added.values())


def test_a_new_accelerator_is_offered_with_the_files_to_start_on_it() -> None:
    answer = advice(accelerators="acme-one", frameworks="vllm")
    first = answer["recommendations"][0]
    assert (first["accelerator"], first["basis"]) == ("acme-one", "datasheet")
    assert "acme.com/one" in first["launch"]["files"]["kubernetes.yaml"]
    assert "/dev/acme" in first["launch"]["files"]["compose.yaml"]


def test_a_new_accelerator_trains_at_its_own_rates() -> None:
    known = catalog_resources([])
    chip = known.accelerators["acme-one"]
    rates = rates_of(chip, efficiency(known.scopes, chip.slug, chip.family, chip.kind), MEGATRON_BF16, MEGATRON)
    assert rates.half_flops_per_s == pytest.approx(0.75 * 600e12)
    assert rates.attention_forward_flops_per_s == pytest.approx(0.6 * 600e12)
    assert rates.attention_backward_flops_per_s == pytest.approx(0.5 * 600e12)


def test_a_new_model_is_advised() -> None:
    answer = advice("acme/Acme-2B", accelerators="h100-sxm")
    first = answer["recommendations"][0]
    assert first["meets_slo"] and "acme/Acme-2B" in first["launch"]["command"]


def test_a_new_framework_is_advised_with_its_command() -> None:
    first = advice(accelerators="acme-one", frameworks="acme-serve")["recommendations"][0]
    assert (first["framework"], first["framework_version"]) == ("acme-serve", "1.2")
    command = first["launch"]["command"]
    assert command.startswith("acme-serve ") and f"--port 8000 --devices {first['tp']}" in command
    assert f"--max-requests {first['concurrency']}" in command and "--share-prefixes" in command
    assert ("--cache-format fp8_e4m3" in command) is (first["kv_dtype"] == "fp8")
    assert "pip install acme-serve==1.2" in first["launch"]["files"]["serve.sh"]
    assert "acme/serve:1.2" in first["launch"]["files"]["kubernetes.yaml"]


def test_the_options_of_a_new_framework_are_checked_against_its_list(
    followed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_flags, "FOLDER", followed / "flags")
    flags = advice(accelerators="acme-one", frameworks="acme-serve")["recommendations"][0]["launch"]["flags"]
    assert flags == {"checked": True, "unknown": [], "source": "acme-serve 1.2.0, options read on 2026-11-21"}


def test_a_new_format_is_among_the_options() -> None:
    first = advice(accelerators="h100-sxm", formats="acme-w6")["recommendations"][0]
    assert first["quantization"] == "acme-w6" and first["framework"] == "vllm"
    beside = advice(accelerators="h100-sxm")["recommendations"][0]["tuning"]["formats"]
    assert "acme-w6" in {each["slug"] for each in beside}


def test_a_new_price_is_used() -> None:
    first = advice(accelerators="h100-sxm")["recommendations"][0]
    assert (first["provider"], first["instance"], first["usd_per_hour"]) == ("acmecloud", "h100.1", 1.9)
    assert first["price_as_of"] == "2026-11-21"


def test_a_price_per_accelerator_counts_in_units_that_are_sold() -> None:
    more = {"accelerators": "h200-sxm", "providers": "acmecloud"}
    first = advice(**more)["recommendations"][0]
    assert first["usd_per_hour"] == first["instances"] * 8 * 4.0  # however few of the eight are in use
    assert any("sold in units of 8" in note for note in first["reasons"] + first["warnings"])


def test_the_prices_of_the_recipe_pass_the_tests_of_shipped_prices(followed: Path) -> None:
    path = followed / "prices" / "acmecloud.csv"
    shipped_files.test_a_file_of_prices_records_where_they_are_from(path)


def test_a_new_hosted_price_is_shown_beside_the_options() -> None:
    hosted = advice("acme/Acme-2B", accelerators="h100-sxm")["hosted"]
    assert [(h["provider"], h["usd_per_mtok_output"]) for h in hosted] == [("acmecloud", 0.03)]


def test_a_new_region_gives_the_carbon_of_its_offers() -> None:
    first = advice(accelerators="h100-sxm")["recommendations"][0]
    kwh_per_mtok = first["joules_per_output_token"] * 1e6 / 3.6e6
    assert first["kgco2e_per_mtok"] == pytest.approx(kwh_per_mtok * 0.028, rel=0.01)


NAMES_IN_CODE = {  # constants of the engine that are not a framework although they are spelled like one
    "vllm": "a load generator (load_test)",
    "mlx": "a stack (scores)",
    "coreml": "a stack (scores)",
}


def test_the_engine_names_no_framework_provider_or_vendor() -> None:
    """Except the code of one training launcher: what it makes of a plan, and its launch files."""
    engine = ROOT / "advisor" / "engine"
    launchers = (engine / "launch" / "training_runs", engine / "training" / "frameworks")
    fixtures = ROOT / "fixtures"
    names = {path.stem for folder in ("frameworks", "prices") for path in (fixtures / folder).iterdir()}
    names |= {fixture_files.accelerator(path)["vendor"] for path in (fixtures / "accelerators").glob("*.yaml")}
    found = {
        (path.name, node.value)
        for path in engine.rglob("*.py")
        if path.parent not in launchers
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names and node.value not in NAMES_IN_CODE
    }
    assert found == set()


# --- what is wrong is named ---------------------------------------------------------------------------------------

ACME, FORMS = "frameworks/acme-serve.yaml", "launch_templates.yaml"
MISTAKES = {
    "an unknown key": (ACME, "memory_policy:", "memory_polcy:", "unknown key memory_polcy"),
    "an unknown value": (FORMS, "-requests $concurrency --max-length", "-requests $seats", "unknown value $seats"),
    "an unknown condition": (FORMS, "pipeline, add: --stages", "piped, add: --stages", "unknown condition piped"),
    "an open quote": (FORMS, "--devices $tensor", "'--devices $tensor", "quote it as in a shell"),
    "an unknown template": (ACME, "template: acme-serve", "template: acme", "'acme' is not in launch_templates.yaml"),
    "an unknown purpose": (ACME, "serves: [tokens]", "serves: [chat]", "'chat' is not one of tokens, vectors, sources"),
    "no host times": (ACME, "host_times:", "x_times:", "unknown key x_times"),
    "half of the host times": (ACME, "  ngram_ms: 1.75\n", "", "host_times: missing ngram_ms"),
    "a list that is not there": (ACME, "[acme-serve-1.2.0]", "[acme-9]", "flags/acme-9.txt does not exist"),
    "a version that is a number": (ACME, '"1.2"', "1.2", "put numbers in quotes"),
    "no source": (ACME, "  source: the header of this list in fixtures/flags/\n", "", "flags: missing source"),
    "no such value in a package": (
        ACME,
        "acme-serve==$version",
        "acme-serve==$release",
        "placeholders allowed are $version",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_framework_stops_the_load_and_is_named(mistake: str, tmp_path: Path) -> None:
    name, right, wrong, said = MISTAKES[mistake]
    fixtures = copied(tmp_path)
    follow(BY_TITLE["A new framework, or a new version"], fixtures)
    text = (fixtures / name).read_text()
    assert right in text
    (fixtures / name).write_text(text.replace(right, wrong))
    with pytest.raises(CommandError, match=re.escape(said)):
        call_command("load_catalog", fixtures, verbosity=0, no_scores=True)


def test_a_server_without_host_times_is_told_where_to_copy_them_from(tmp_path: Path) -> None:
    fixtures = copied(tmp_path)
    follow(BY_TITLE["A new framework, or a new version"], fixtures)
    path = fixtures / ACME
    path.write_text(re.sub(r"(?ms)^host_times:\n.*?(?=^\w)", "", path.read_text()))
    with pytest.raises(CommandError, match="copy those of a similar framework with basis: relative"):
        call_command("load_catalog", fixtures, verbosity=0, no_scores=True)


def test_a_list_of_frameworks_of_the_earlier_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "frameworks.yaml").write_text("[]\n")
    with pytest.raises(CommandError, match="no longer supported; move each framework"):
        call_command("load_catalog", tmp_path, verbosity=0, no_scores=True)
