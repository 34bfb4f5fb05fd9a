"""Pages of results by cursor, while pieces of the study end, and start again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models import Study, StudyPiece
from advisor.studies import pieces
from catalog.models import default_organisation
from catalog.rest import cursors
from tests.clocks import TODAY

pytestmark = pytest.mark.django_db
STUDY: Any = {"kind": "grid", "name": "s", "points": 9, "prices_as_of": TODAY}
INDEX = st.integers(0, 7)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8), begun=st.sets(INDEX),
    turns=st.lists(st.sets(INDEX), max_size=30), limit=st.integers(1, 5), by_offset=st.booleans(),
)  # fmt: skip
def test_each_row_is_listed_once_whatever_pieces_end_or_start_again_meanwhile(
    sizes: list[int], begun: set[int], turns: list[set[int]], limit: int, by_offset: bool
) -> None:
    study = Study.objects.create(
        organisation=default_organisation(), kind="grid", name="s", points=9, prices_as_of=TODAY
    )
    for index, size in enumerate(sizes):
        result = [{"point": [index, n]} for n in range(size)]
        state = "done" if index in begun else "queued"
        StudyPiece.objects.create(study=study, index=index, size=size, result=result, state=state, points=[])
    done, always, walked, place = set(begun), set(begun), list[Any](), dict[str, Any]()
    if by_offset:  # a page by offset names the cursor of the next
        rows = pieces.Rows(study)
        walked, place = rows[:limit], cursors.Rows(rows).place_at(limit) if len(rows) > limit else {"row": [99, 0]}
    following: Any = place
    changes = iter(turns)
    while following is not None:
        found, following, _ = cursors.Rows(pieces.Rows(study)).page(json.loads(json.dumps(following)), limit)
        walked += found
        for index in next(changes, ()):
            done ^= {index}
            StudyPiece.objects.filter(study=study, index=index).update(state="done" if index in done else "queued")
        always &= done
    points = [tuple(row["point"]) for row in walked]
    assert points == sorted(set(points))
    wanted = {(index, n) for index, size in enumerate(sizes) if index in always for n in range(size)}
    assert {point for point in points if point[0] in always} == wanted


def test_pages_backward_are_the_pages_forward() -> None:
    study = Study.objects.create(
        organisation=default_organisation(), kind="grid", name="s", points=9, prices_as_of=TODAY
    )
    for index in range(3):
        result = [{"point": [index, n]} for n in range(3)]
        StudyPiece.objects.create(study=study, index=index, size=3, result=result, state="done", points=[])
    rows, forward, place = cursors.Rows(pieces.Rows(study)), list[Any](), dict[str, Any]()
    following: Any = place
    while following is not None:
        found, following, before = rows.page(following, 2)
        forward.append(found)
    backward = [found]
    while before is not None:
        found, _, before = rows.page(before, 2)
        backward.append(found)
    assert backward[::-1] == forward and len(forward) == 5
