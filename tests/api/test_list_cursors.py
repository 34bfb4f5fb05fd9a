"""Cursors of lists: every row once and in order, whatever is added or removed meanwhile; and `fields`."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from advisor.models import Advice, Workload
from catalog.models import Price
from catalog.rest.selection import chosen, tree_of
from tests import sample_advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
LIST = "/api/v1/advice"
SORTED = ("created_at", "finished_at", "kind", "made_by", "name", "state")
SORTS = ("", *(f"{sign}{name}" for name in SORTED for sign in ("", "-")), "state,-kind,name")
FILTERS = (
    "", "state=queued", "kind=embedding", "author=ada", "tag=blue", "constraint=max_accelerators", "name=a",
    "since=2026-10-02", "kind=serving&author=ada&tag=blue",
)  # fmt: skip
EARLIEST = datetime(2026, 10, 1, tzinfo=UTC)


def get(path: str, status: int = 200) -> Any:
    answer = Client().get(path)
    assert answer.status_code == status, answer.content
    return answer.json()


def add(day: int, name: str, finished: bool, is_blue: bool = False) -> str:
    row = sample_advice.advice(state="cancelled" if finished else "queued", made_by="ada" if day % 2 else "")
    at = EARLIEST + timedelta(days=day, microseconds=day)
    Advice.objects.filter(pk=row.pk).update(created_at=at, finished_at=at if finished else None)
    spec = row.workload.spec | {"kind": "embedding" if name == "b" else "serving"}
    if is_blue:
        spec |= {"tags": ["blue"], "constraints": spec["constraints"] | {"max_accelerators": 8}}
    Workload.objects.filter(pk=row.workload_id).update(name=name, spec=spec)
    return str(row.pk)


ROW = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "Ä", "z 'quote'"]), st.booleans(), st.booleans())


@given(
    rows=st.lists(ROW, min_size=1, max_size=6),
    later=st.lists(ROW, max_size=4),
    sort=st.sampled_from(SORTS),
    narrowed=st.sampled_from(FILTERS),
    limit=st.integers(1, 3),
)
def test_rows_that_stay_are_seen_once_and_in_order(
    rows: list[Any], later: list[Any], sort: str, narrowed: str, limit: int
) -> None:
    """One row is added before each page, and one that was seen already is deleted."""
    with transaction.atomic():
        stay = [add(*row) for row in rows]
        asked = f"{LIST}?limit={limit}" + (f"&sort={sort}" if sort else "") + f"&{narrowed}" * bool(narrowed)
        in_order = [row["id"] for row in get(asked.replace(f"limit={limit}", "limit=200"))["results"]]
        coming, seen = list(later), list[str]()
        page = get(f"{asked}&cursor=")
        while True:
            seen += [row["id"] for row in page["results"]]
            if page["next"] is None:
                break
            if coming and seen:
                Advice.objects.filter(pk=seen[0]).delete()
                add(*coming.pop())
            page = get(page["next"])
        assert [pk for pk in seen if pk in stay] == in_order and len(seen) == len(set(seen))
        if not later:  # and back again
            back = [row["id"] for row in page["results"]]
            while page["previous"]:
                page = get(page["previous"])
                back = [row["id"] for row in page["results"]] + back
            assert back == in_order
        transaction.set_rollback(True)


WALKED = (
    "accelerators?sort=-usd_per_hour_min", "accelerators?ordering=tflops_per_watt,vendor", "prices?sort=provider",
    "prices?accelerator=h100-sxm", "models?sort=-family", "units?", "regions?sort=-name", "api-prices?sort=model",
    "evidence?", "frameworks?sort=-as_of", "calibrations?", "quantizations?", "assumptions?",
)  # fmt: skip


@pytest.mark.parametrize("path", WALKED)
def test_pages_by_cursor_are_the_list(path: str) -> None:
    whole = get(f"/api/v1/{path}&limit=1000")["results"][:120]
    found, page = list[Any](), get(f"/api/v1/{path}&limit=37&cursor=")
    while len(found) < len(whole):
        found += page["results"]
        assert bool(page["next"]) == bool(page["next_cursor"])
        if page["next"] is None:
            break
        page = get(page["next"])
    assert found[:120] == whole


@pytest.mark.parametrize("text", ["x", "\u6f22\U0001f600"])
def test_long_texts_are_pages_too(text: str) -> None:
    """Sorted by a text that no address could hold; rows that begin alike are sorted by their keys."""
    for n, row in enumerate(Price.objects.order_by("pk")[:5]):
        noise = "".join(map(chr, random.Random(n).choices(range(0x4E00, 0x9000), k=3000)))  # does not compress
        Price.objects.filter(pk=row.pk).update(source=noise if n < 3 else f"\u9fff{text * 2000}{-n}")
    asked = "/api/v1/prices?sort=-source&limit="
    whole = [row["id"] for row in get(f"{asked}12")["results"]]
    found, page = list[Any](), get(f"{asked}1&cursor=")
    while len(found) < len(whole):
        found += [row["id"] for row in page["results"]]
        page = get(page["next"])
    assert found == whole


def test_a_page_by_offset_names_the_cursor_of_the_next() -> None:
    rows = [add(day, "a", False) for day in range(3)]
    page = get(f"{LIST}?limit=1&offset=1")
    assert get(f"{LIST}?limit=1&cursor={page['next_cursor']}")["results"][0]["id"] == rows[0]


@pytest.mark.parametrize("change", ["", "x", "name=b&", "sort=name&"])
def test_a_cursor_of_another_list_or_of_nobody_is_refused(change: str) -> None:
    for day in range(2):
        add(day, "a", False)
    cursor = get(f"{LIST}?limit=1")["next_cursor"]
    given = cursor[:-3] if change == "x" else cursor
    query = f"{change if '=' in change else ''}limit=1&cursor={given}" + ("" if change else "&offset=1")
    assert get(f"{LIST}?{query}", 400)["errors"][0]["field"] == "cursor"


# --- fields -----------------------------------------------------------------------------------------------------


def test_only_the_named_fields_of_each_row_are_returned() -> None:
    add(1, "chat", True)
    (row,) = get(f"{LIST}?fields=name,links.self,links.html")["results"]
    assert row["name"] == "chat" and set(row) == {"name", "links"} and set(row["links"]) == {"self", "html"}
    chips = get("/api/v1/accelerators?limit=2&fields=slug&sort=slug")["results"]
    assert [list(each) for each in chips] == [["slug"], ["slug"]]
    assert get("/api/v1/accelerators/h100-sxm?fields=slug,memory_gib").keys() == {"slug", "memory_gib"}


def test_an_object_may_be_read_in_parts() -> None:
    advice = sample_advice.advice()
    found = get(f"{LIST}/{advice.pk}?fields=state,result.recommendations.label,result.verdict")
    assert found.keys() == {"state", "result"} and found["result"].keys() == {"recommendations", "verdict"}
    assert all(each.keys() == {"label"} for each in found["result"]["recommendations"])
    whole = get(f"{LIST}/{advice.pk}/result")
    assert get(f"{LIST}/{advice.pk}/result?fields=verdict") == {"verdict": whole["verdict"]}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("advice?fields=id,titel", "name"),
        ("advice?fields=", "separated by commas"),
        ("advice?fields=id,,name", "separated by commas"),
        ("accelerators?fields=slug.x", "it has no fields"),
        ("accelerators/h100-sxm?fields=price", "memory_gib"),
        ("models?fields=id", "hf_id"),
        ("freshness?fields=kinds.nam", "age_days"),
        ("?fields=advise", "advice"),
    ],
)
def test_a_field_that_is_not_there_is_refused_with_those_that_are(path: str, allowed: str) -> None:
    refused = Client().get(f"/api/v1/{path}")
    (error,) = refused.json()["errors"]
    assert refused.status_code == 400 and refused["Content-Type"] == "application/problem+json"
    assert error["field"] == "fields" and allowed in error["message"]


NAMES = st.sampled_from("abc")
JSON = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(".".join), min_size=1, max_size=4)


@given(data=JSON, paths=PATHS)
def test_a_choice_holds_what_its_paths_name_and_nothing_else(data: Any, paths: list[str]) -> None:
    class Asked:
        GET, method = {"fields": ",".join(paths)}, "GET"

    tree = tree_of(Asked)
    assert tree is not None
    found = chosen(data, tree)
    assert chosen(found, tree) == found  # nothing is left to leave out

    def leaves(value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, list):
            for each in value:
                yield from leaves(each, path)
        elif isinstance(value, dict):
            for name, each in value.items():
                yield from leaves(each, (*path, name))
        else:
            yield path, json.dumps(value)

    wanted = [tuple(path.split(".")) for path in paths]
    named = [(path, text) for path, text in leaves(data) if any(path[: len(each)] == each for each in wanted)]
    kept = [each for each in leaves(found) if any(each[0][: len(one)] == one for one in wanted)]
    assert sorted(kept) == sorted(named)
