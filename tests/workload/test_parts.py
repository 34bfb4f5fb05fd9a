"""A portfolio: each workload is validated by itself, and its errors stand at its place."""

from typing import Any

import pytest

from advisor.workload.parts import check_parts
from advisor.workload.rules import as_part
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError, error
from tests.workload.test_workload_refused import GOOD, refused

BATCH = {**GOOD, "kind": "batch", "batch": {"requests": 10, "deadline_hours": 1}}
BATCH["traffic"] = {"input_tokens": 5, "output_tokens": 5}


def portfolio(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "portfolio", "workloads": list(parts), **more}


def test_each_workload_is_filled_in_by_itself():
    spec = parse(portfolio(GOOD, BATCH))
    assert [part["kind"] for part in spec["workloads"]] == ["serving", "batch"]
    assert spec["workloads"][0] == parse(as_part(GOOD))
    assert parse(spec) == spec


def test_errors_stand_at_the_place_of_their_workload():
    found = refused(portfolio(GOOD, {**GOOD, "objective": "costs"}, {"kind": "batch"}))
    assert "did you mean cost" in found["workloads[1].objective"]["message"]
    assert "workloads[2].batch" in found and not any(field.startswith("workloads[0]") for field in found)


def test_a_portfolio_holds_no_portfolio_and_the_others_are_still_checked():
    found = refused(portfolio(portfolio(GOOD), {**GOOD, "model": None}))
    assert found["workloads[0].kind"]["message"] == "a portfolio cannot contain another portfolio"
    assert "workloads[1].model" in found


def test_workloads_belong_to_a_portfolio():
    found = refused({**GOOD, "workloads": [GOOD]})["workloads"]
    assert found["message"] == "cannot be used with kind serving" and found["allowed"] == "kind: portfolio"


def test_all_workloads_have_the_prices_of_the_portfolios_day():
    spec = parse(portfolio({**GOOD, "prices_as_of": "2026-01-05"}, GOOD, prices_as_of="2026-02-03"))
    assert [part["prices_as_of"] for part in spec["workloads"]] == ["2026-02-03"] * 2
    own = parse(portfolio({**GOOD, "prices_as_of": "2026-01-05"}, GOOD))
    assert [part["prices_as_of"] for part in own["workloads"]] == ["2026-01-05", None]


def test_paths_stay_as_they_are():
    assert parse(portfolio("chat.yaml", GOOD))["workloads"][0] == "chat.yaml"


@pytest.mark.parametrize("count", [0, 21])
def test_a_portfolio_has_1_to_20_workloads(count):
    assert "workloads" in refused(portfolio(*[GOOD] * count))
    assert len(parse(portfolio(*[GOOD] * 20))["workloads"]) == 20


# --- against the catalog ----------------------------------------------------------------------------------------


def test_workloads_are_checked_against_the_catalog_and_told_at_their_place():
    asked: list[tuple[Any, bool, int]] = []

    def check(part: Any, files: bool, before: int) -> None:
        asked.append((part["model"], files, before))
        if part["model"] == "absent":
            raise WorkloadError([error("model", "is not in the catalog"), error("", "and more")])

    parts = [GOOD, {**GOOD, "model": "absent"}, "path.yaml", {**GOOD, "kind": "video"}, {**GOOD, "model": "last"}]
    spec = {"workloads": [{"kind": "serving", **part} if isinstance(part, dict) else part for part in parts]}
    found = check_parts(spec, True, check)
    assert [item["field"] for item in found] == [
        "workloads[1].model", "workloads[1]", "workloads[2]", "workloads[3].kind",
    ]  # fmt: skip
    assert found[2]["message"] == "file paths are not accepted here"
    assert found[3]["message"].startswith("video is not supported yet")
    assert asked == [("m", True, 0), ("absent", True, 0), ("last", True, 4)]
