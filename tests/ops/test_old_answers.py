"""Answers of earlier versions stay readable after an upgrade, with the figures that were stored."""

import csv
import html
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from advisor.models import Advice, Option, Share
from advisor.report.documents import DOCUMENTS, EXPORTS, XLSX, has_papers
from advisor.report.documents.subject import TOTALS_ONLY
from advisor.result import Answer
from advisor.templatetags.units import dollars
from tests import old_databases
from tests.pages import every_section

PAPERS = [name for name in DOCUMENTS if name not in EXPORTS]
MOST_BYTES = 300_000  # of one stored answer
SOAK = {"0.1.0-without-money.sqlite3": pytest.mark.soak}  # the shared fleet without money needs the same steps
ON_POSTGRES = ("0.1.0.sqlite3",)  # one of each form of the columns


@dataclass(frozen=True, slots=True)
class Old:
    """An old database, migrated, and its results as they stood in the file."""

    results: dict[str, dict[str, Any]]

    def answers(self) -> list[tuple[Advice, dict[str, Any]]]:
        rows = Advice.objects.filter(state="done").select_related("workload").defer("snapshot", "result")
        return [(advice, self.results[advice.workload.name]) for advice in rows]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (file, where),
            marks=[pytest.mark.postgres, pytest.mark.soak] if where == "postgres" else SOAK.get(file.stem, ()),
            id=f"{file.stem}-{where}",
        )
        for file in old_databases.FILES
        for where in ("sqlite", "postgres")
        if where == "sqlite" or file.stem in ON_POSTGRES
    ],
)
def old(request: Any, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Old]:
    file: Path
    file, where = request.param
    taken = old_databases.decompress(file, tmp_path_factory.mktemp("old"))
    results = old_databases.stored(taken)
    with django_db_blocker.unblock(), old_databases.migrated(taken, where):
        yield Old(results)


def read(path: str) -> str:
    """The text at an address; of a workbook, the texts of its cells."""
    found = Client().get(path)
    assert found.status_code == 200, (path, found.status_code, found.content[:300])
    if found["Content-Type"] == XLSX:
        return zipfile.ZipFile(io.BytesIO(found.content)).read("xl/sharedStrings.xml").decode()
    return found.content.decode()


def kept(before: Any, now: Any) -> bool:
    """Whether everything that was stored is still said, with the same values; more may be said beside it."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and kept(value, now[key]) for key, value in before.items())
    if isinstance(before, list):
        return isinstance(now, list) and len(before) == len(now) and all(map(kept, before, now))
    return bool(before == now)


def test_the_database_holds_answers(old: Old) -> None:
    assert len(old.answers()) == len(old.results) >= 2


def test_every_result_has_the_stored_figures(old: Old) -> None:
    for advice, before in old.answers():
        for path in (f"/api/v1/advice/{advice.pk}/result?include=all", f"/advice/{advice.pk}/result.json"):
            assert kept(before, Client().get(path).json()), (advice.workload.name, path)
        assert kept(before, Client().get(f"/api/v1/advice/{advice.pk}?include=all").json()["result"])


def test_every_page_is_shown(old: Old) -> None:
    listed = read("/advice") + read("/api/v1/advice")
    for advice, before in old.answers():
        page = every_section(Client(), f"/advice/{advice.pk}")
        assert before["verdict"] in html.unescape(page)
        assert advice.workload.name in listed
        for r in before["recommendations"]:
            option = every_section(Client(), f"/advice/{advice.pk}/options/{r['rank']}")
            assert r["label"] in html.unescape(option)
        if before["recommendations"]:
            assert before["recommendations"][0]["label"] in html.unescape(listed)
    for advice in Advice.objects.exclude(state="done"):
        every_section(Client(), f"/advice/{advice.pk}")


def test_every_export_has_the_stored_figures(old: Old) -> None:
    for advice, before in old.answers():
        rows = list(csv.DictReader(io.StringIO(read(f"/advice/{advice.pk}/options.csv"))))
        shown = [(int(row["rank"]), row["label"], float(row["usd_per_month"])) for row in rows]
        assert shown == [(r["rank"], r["label"], r["usd_per_month"]) for r in before["recommendations"]]
        markdown = read(f"/advice/{advice.pk}/advice.md")
        assert before["verdict"] in html.unescape(re.sub(r"\\([^\w\s])", r"\1", markdown))
        assert advice.workload.name in read(f"/advice/{advice.pk}/workload.yaml")


def test_every_document_has_the_stored_figures(old: Old) -> None:
    for advice, before in old.answers():
        assert "name,value,unit" in read(f"/advice/{advice.pk}/documents/assumptions.csv")
        for r in before["recommendations"]:
            if r["rank"] not in (1, len(before["recommendations"])):
                continue
            paper = {name: read(f"/advice/{advice.pk}/documents/{name}?rank={r['rank']}") for name in PAPERS}
            for memo in ("memo.html", "memo.md"):
                assert dollars(r["usd_per_month"]) in paper[memo]
            early = "money" not in r
            assert all((TOTALS_ONLY in text) is early for name, text in paper.items() if name != "assumptions.csv")
            bill = list(csv.DictReader(io.StringIO(paper["bill-of-materials.csv"])))
            assert bill[0]["quantity"] == str(r["instances"]) and bill[0]["price_as_of"]
            cash = list(csv.DictReader(io.StringIO(paper["cash-flow.csv"])))
            total = float(cash[1]["present_usd"]) if early else sum(float(row["present_usd"]) for row in cash)
            assert total == pytest.approx(r["tco_usd"], rel=1e-4)
        for name in PAPERS if before.get("portfolio") and has_papers(Answer.read(before)) else ():
            text = read(f"/api/v1/advice/{advice.pk}/documents/{name}")
            if name.startswith("memo"):
                assert before["verdict"] in html.unescape(text)


def test_every_link_is_shown(old: Old) -> None:
    token = "share-of-an-earlier-version"  # of save_database.py; the migration hashed it
    for share in Share.objects.select_related("advice__workload"):
        before = old.results[share.advice.workload.name]
        assert before["verdict"] in html.unescape(every_section(Client(), f"/s/{token}"))
        for r in before["recommendations"]:
            every_section(Client(), f"/s/{token}/options/{r['rank']}")
        for name in PAPERS:
            read(f"/s/{token}/documents/{name}")


def test_every_load_test_is_compared_with_its_prediction(old: Old) -> None:
    for option in Option.objects.exclude(load_tests=None):
        shown = Client().get(f"/api/v1/advice/{option.advice_id}/options/{option.rank}/load-tests").json()
        assert shown["tests"] and all(test["rows"] for test in shown["tests"])


def test_an_answer_takes_little_room(old: Old) -> None:
    for advice, _ in old.answers():
        with connection.cursor() as cursor:
            cursor.execute("SELECT length(snapshot) + length(result) FROM advisor_advice WHERE id = %s", [key(advice)])
            (size,) = cursor.fetchone()
        assert 0 < size < MOST_BYTES, (advice.workload.name, size)


def key(advice: Advice) -> str:
    return advice.pk.hex if connection.vendor == "sqlite" else str(advice.pk)
