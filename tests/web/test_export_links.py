"""Pages link the files for other systems of an option: those that exist, and no others."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from advisor.report import EXPORTS
from advisor.result import ApiOption
from tests import links, old_databases, sample_advice, sample_training
from tests.report.test_documents import RANKED_API

pytestmark = pytest.mark.django_db


def serving(folder: Path) -> Advice:
    """A whole answer with launch files, behind a hosted API."""
    (file,) = [file for file in old_databases.FILES if file.name == "0.1.0.sqlite3.xz"]
    answer = old_databases.stored(old_databases.decompress(file, folder))["support-chat"]
    return sample_advice.advice(answer, result_version=1)


def shown(client: Client, path: str) -> set[str]:
    html = client.get(f"{path}?section=run").content.decode()
    return set(re.findall(r'href="([^"]+/documents/[^"]+\.yaml\?rank=\d+)"', html))


def existing(client: Client, base: str, rank: int) -> set[str]:
    paths = {f"{base}/documents/{name}?rank={rank}" for name in EXPORTS}
    return {path for path in paths if client.get(path).status_code == 200}


def agree(client: Client, base: str, ranks: list[int], first: int) -> set[str]:
    """All links of these options, which are those that can be opened; the answer has those of the first deployment."""
    found: set[str] = set()
    for rank in ranks:
        links_of = shown(client, f"{base}/options/{rank}")
        assert links_of == existing(client, base, rank), rank
        found |= links_of
    assert shown(client, base) == existing(client, base, first)
    return found


def test_an_option_links_the_files_that_there_are_for_it(client: Client, tmp_path: Path) -> None:
    made = serving(tmp_path)
    ranks = [each["rank"] for each in (made.answer or {})["recommendations"]]
    found = agree(client, f"/advice/{made.pk}", ranks, 1)
    assert found and len(found) < len(ranks) * len(EXPORTS)
    shared = agree(client, f"/s/{links.shared(client, made, days='7')}", ranks[:1], 1)
    assert {path.rpartition("/")[2] for path in shared} <= {path.rpartition("/")[2] for path in found}


@pytest.mark.usefixtures("frozen")
def test_a_training_run_links_its_task_alone(client: Client) -> None:
    made = sample_training.advice("weekly")
    ranks = [each["rank"] for each in (made.answer or {})["recommendations"]]
    found = agree(client, f"/advice/{made.pk}", ranks, 1)
    assert {re.sub(r".*/|\?.*", "", path) for path in found} == {"skypilot.yaml"}


def test_a_hosted_api_and_an_option_without_a_manifest_link_none(client: Client) -> None:
    answer: dict[str, Any] = sample_advice.result()
    nulls = {name: None for name, field in ApiOption.model_fields.items() if field.annotation is type(None)}
    api = {**nulls, **RANKED_API, "how_to_call": "curl", "provider_name": "Some Host"}
    answer["recommendations"] = [api] + [each | {"rank": each["rank"] + 1} for each in answer["recommendations"]]
    made = sample_advice.advice(answer)
    assert agree(client, f"/advice/{made.pk}", [1, 2], 2) == set()
