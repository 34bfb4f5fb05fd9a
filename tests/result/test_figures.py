"""One table of figures: a new one needs four files and is then shown everywhere; the others keep their names."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.result import (
    FIGURES,
    GROUPS,
    Answer,
    ApiOption,
    Decision,
    Option,
    TrainingOption,
    csv_columns,
    shown_in,
)
from advisor.result.base import Section
from advisor.web.answers import comparison
from tests import sample_advice

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("advisor", "catalog", "probes", "tests", "docs", "manage.py", "pyproject.toml", "CHANGELOG.md")
ROW = (
    '    speed("Warm-up", "warmup_s", "s", "low", heading="warm-up s", csv=90, sort="warmup", makes=SERVED,\n'
    '          memo="Money", page="tiles", term="warm-up"),\n'
)
PATCH = {  # file: (before this line, what is added)
    "advisor/result/options/option.py": (
        "    scale_to_zero: ScaleToZero | None = None\n",
        '    warmup_s: Seconds | None = None\n    """Time until the first request is served at full speed."""\n',
    ),
    "advisor/answer/options/option.py": (
        "        bound=bound_of(steps),\n",
        "        warmup_s=40.0 + 0.125 * (rank or 0),\n",
    ),
    "advisor/result/figures.py": ("    # confidence\n", ROW),
    "docs/glossary.md": ("## Utilization\n", "## Warm-up\n\nTime until a server answers at full speed.\n\n"),
}
SHOWN = {  # surface: what it says of the new figure of the first option
    "table": r"warm-up s.*\n1 .* 40\.1 ",
    "Markdown": r"\| warm-up s \|.*\n.*\n\| 1 \|.* 40\.1 \|",
    "CSV": r"warmup_s\r\n1,.*,40\.125\r\n",
    "ranking": r'aria-sort="ascending"[^>]*><a href="[^"]*sort=-warmup[^>]*>Warm-up<(.|\n)*<td class="num">40\.1 s',
    "comparison": r">Warm-up <(.|\n)*?>40\.1 s<span[^>]*>✓ lowest<(.|\n)*?>40\.2 s<",
    "CSV of a comparison": r"Performance,Warm-up,yes,40\.125,,,lowest,40\.25",
    "memo": r"<th scope=\"row\">warm-up</th><td>40\.1 s</td>",
    "memo in Markdown": r"\| warm-up \| 40\.1 s \|",
    "page of an option": r'glossary/#warm-up"[^>]*>Warm-up</a></dt><dd>40\.1 s',
    "result": r'"warmup_s": ?40\.125',
    "OpenAPI schema": r'"warmup_s": ?\{(.|\n)*?"x-unit": ?"s"',
    "reference": r"warmup_s.*\| s \|",
}


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> dict[str, str]:
    """What a copy of the tree shows after the patch."""
    tree, var = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("var")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True)  # catalog/data links to docs and fixtures
        else:
            shutil.copy(ROOT / name, tree / name)
    (tree / "fixtures").symlink_to(ROOT / "fixtures")
    for name, (line, added) in PATCH.items():
        text = (tree / name).read_text()
        assert text.count(line) == 1, name
        (tree / name).write_text(text.replace(line, added + line))
    shutil.copy(migrated, var / "db")
    env = os.environ | {"ASSAY_VAR": str(var), "DATABASE_URL": f"sqlite:///{var}/db"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.result.new_figure"], cwd=tree, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: text.replace("\u00a0", " ") for name, text in found.items()}


@pytest.mark.parametrize("surface", SHOWN)
def test_a_patch_of_four_files_adds_a_figure_to_everything_that_shows_options(
    surface: str, surfaces: dict[str, str]
) -> None:
    assert len(PATCH) <= 4
    assert re.search(SHOWN[surface], surfaces[surface]), surfaces[surface]


SERVING_CSV = (
    "rank label accelerator accelerator_count provider instance region acquisition framework framework_version "
    "weights_dtype quantization kv_dtype tp pp ep dp replicas concurrency max_batched_tokens ttft_ms_p95 tpot_ms_p95 "
    "output_tokens_per_s requests_per_s utilisation usd_per_hour usd_per_month usd_per_mtok_input usd_per_mtok_output "
    "usd_per_mtok_blended tco_usd watts joules_per_output_token kgco2e_per_mtok bound basis price_as_of price_source "
    "latency_ms_p95 input_tokens_per_s sequences_per_s"
)
TRAINING_CSV = (
    "rank label kind accelerator accelerator_count spare_hosts provider instance instances region acquisition term "
    "framework framework_version method adapter_rank precision optimizer dp tp pp cp ep virtual_stages zero recompute "
    "sequence_length micro_batch micro_batches global_batch_tokens peak_allocated_gib peak_reserved_gib usable_gib "
    "step_s tokens_per_s tokens_per_s_per_accelerator tflops_per_accelerator mfu hfu bound tokens steps days "
    "accelerator_hours goodput_fraction checkpoint_interval_s deadline_probability usd_per_run usd_total usd_per_mtok "
    "usd_per_accelerator_hour usd_per_month watts kwh kgco2e basis price_as_of price_source price_weakness"
)


def test_published_columns_and_sort_keys_stay_where_they_are() -> None:
    """Scripts and bookmarks of users rely on them; new columns come last."""
    for trains, published in ((False, SERVING_CSV), (True, TRAINING_CSV)):
        columns = [figure.column for figure in csv_columns(trains)]
        assert columns[: len(published.split())] == published.split()
    keys = {
        "tokens": {"rank", "month", "mtok", "ttft", "tpot", "power"},
        "vectors": {"rank", "month", "mtok", "latency", "sequences", "power"},
        "weights": {"rank", "usd", "days", "speed", "mfu", "goodput", "kwh", "mtok"},
    }
    for makes, published_keys in keys.items():
        assert published_keys <= {figure.sort for figure in shown_in("sort", makes)}


def test_every_path_is_a_field_of_some_answer() -> None:
    """A misspelled path would show nothing."""
    for each in FIGURES:
        head = each.path.split(".")[0]
        known = any(kind.has(head) for kind in (Option, ApiOption, TrainingOption, Decision))
        assert known or each.path in comparison.READ, each.path
    first = Answer.read(sample_advice.result()).recommendations[0]
    embedding = first.changed(latency_ms=first.ttft_ms)
    for each in csv_columns(trains=False):
        embedding.figure(each.path)
    assert embedding.figure("latency_ms.p95") == first.ttft_ms.p95 and first.figure("latency_ms.p95") is None
    with pytest.raises(KeyError):
        first.figure("ttft_ms.p96")


OF_FIELDS = {  # unit in the table: those of the fields that are written in it
    "USD": ("USD", "USD/month"),
    "USD/h": ("USD/h",),
    "share": ("fraction",),
    "probability": ("fraction",),
    "sequences/s": ("requests/s",),
    "tokens": ("1", "accelerator-hours"),
    "J": ("J/token",),
    "kg CO2e": ("kg CO2e", "kg CO2e per million tokens"),
}


def unit_of(section: type[Section], path: str) -> str | None:
    """The unit of a field, as the schema states it; None: a text or a section."""
    name, _, rest = path.partition(".")
    field = section.model_fields.get(name)
    if field is None:
        return None
    schema = json.dumps(section.model_json_schema(ref_template="{model}")["properties"][name])
    if rest:
        inner = [each for each in Section.__subclasses__() if f'"{each.__name__}"' in schema]
        return unit_of(inner[0], rest) if inner else None
    unit = re.search(r'"x-unit": "([^"]*)"', schema)
    return unit[1] if unit else None


def test_units_are_those_of_the_fields() -> None:
    for each in FIGURES:
        known = {unit_of(kind, each.path) for kind in (Option, TrainingOption)} - {None} if each.unit else set()
        assert known <= set(OF_FIELDS.get(each.unit, (each.unit,))), (each.path, each.unit, known)


def test_a_place_of_the_comparison_is_one_of_its_groups_and_its_rows_are_named_once() -> None:
    assert {figure.group for figure in FIGURES} - {""} == set(GROUPS)
    for makes in ("tokens", "vectors", "weights"):
        names = [(f.group, f.path) for f in shown_in("group", makes)]
        assert len(names) == len(set(names))
