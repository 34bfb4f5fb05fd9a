"""What a command cannot use it names, with what to give instead; nothing is kept of it."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.models import CatalogLoad, Price, ServedModel
from probes.models import Enrolment

pytestmark = pytest.mark.django_db
CONFIG = (
    '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100,'
    ' "num_hidden_layers": 2}'
)


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "prices.csv"
    path.write_bytes(b"provider,\xff\xfe\x00\n")
    return str(path)


def refused(*words: str) -> str:
    with pytest.raises(CommandError) as error:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    return str(error.value)


@pytest.mark.parametrize("form", ["csv", "skypilot", "gpuhunt", "litellm"])
def test_a_price_list_that_is_no_text(binary: str, form: str) -> None:
    assert "prices.csv" in refused("import_prices", "--from", form, binary)
    assert not Price.objects.exists()


def test_a_price_list_that_is_not_there(tmp_path: Path) -> None:
    assert "give the path of a file" in refused("import_prices", "--from", "csv", str(tmp_path / "none.csv"))


def test_a_model_that_is_no_text_or_has_a_name_that_no_address_could_hold(binary: str, tmp_path: Path) -> None:
    assert "cannot be read as text" in refused("import_model", binary)
    (tmp_path / "config.json").write_text(CONFIG)
    assert "lowercase letters" in refused("import_model", str(tmp_path / "config.json"), "--slug", "Bad Slug!")
    assert not ServedModel.objects.exists()


def test_a_description_that_cannot_be_written(tmp_path: Path) -> None:
    assert "Is a directory" in refused("export_openapi", str(tmp_path))


def test_a_folder_without_fixtures_is_no_catalog(tmp_path: Path) -> None:
    assert "contains no fixtures" in refused("load_catalog", str(tmp_path))
    assert not CatalogLoad.objects.exists()


@pytest.mark.parametrize("url", ["assay.example", "https://a.example; rm -r x", "https://a b"])
def test_lines_to_paste_name_an_address_and_nothing_else(url: str) -> None:
    assert "such as https://assay.example" in refused("enrol", "--server", url)
    assert not Enrolment.objects.exists()
