"""A config.json becomes a model of the catalog."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from catalog.models import ServedModel
from tests.engine.hf_configs import CONFIGS

pytestmark = pytest.mark.django_db
LLAMA = CONFIGS["meta-llama/Llama-3.1-8B"]


def run(what, *options):
    out = StringIO()
    call_command("import_model", str(what), *options, stdout=out)
    return out.getvalue().strip()


def write(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_file_becomes_a_model_with_its_source(tmp_path):
    said = run(write(tmp_path, LLAMA), "--slug", "my-llama")
    assert said == "my-llama: created, 8.03 B parameters, 8.03 B active"
    row = ServedModel.objects.get(slug="my-llama")
    assert row.shape["hidden"] == 4096
    assert row.sources["shape"]["source"] == "config.json"
    assert row.max_context_tokens == 131072


def test_importing_again_changes_nothing(tmp_path):
    path = write(tmp_path, LLAMA)
    run(path, "--slug", "my-llama")
    assert "unchanged" in run(path, "--slug", "my-llama")


def test_a_model_is_not_imported_under_a_second_slug(tmp_path):
    path = write(tmp_path, LLAMA | {"_name_or_path": "acme/llama"})
    run(path, "--slug", "my-llama")
    with pytest.raises(CommandError, match="acme/llama is already in the catalog as my-llama"):
        run(path, "--slug", "your-llama")


@pytest.mark.parametrize("what", ["nothing-here", "../../etc/none", "http://example.org/config.json", "a/b/c"])
def test_what_is_neither_file_nor_id_is_refused(what):
    with pytest.raises(CommandError, match="neither a file nor a Hugging Face ID"):
        run(what)


def test_an_unknown_architecture_is_refused_by_name(tmp_path):
    with pytest.raises(CommandError, match="rwkv"):
        run(write(tmp_path, {"model_type": "rwkv"}), "--slug", "x")


def test_a_file_without_a_name_needs_a_slug(tmp_path):
    with pytest.raises(CommandError, match="--slug"):
        run(write(tmp_path, LLAMA))


@pytest.mark.parametrize("text", ["{", "[]"])
def test_what_is_no_configuration_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CommandError, match="JSON"):
        run(tmp_path / "config.json", "--slug", "x")
