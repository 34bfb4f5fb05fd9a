"""The cases of docs/tutorial/cases about money: what each page says is what the engine answers."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from advisor import workload
from advisor.advise import default_organisation
from advisor.inputs.from_catalog import take_snapshot
from catalog.models import Accelerator, Price
from tests.as_json import recommend
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ROOT = Path(__file__).resolve().parents[2]


def answer(name: str, chips: str = "", **changes: str) -> dict[str, Any]:
    """The case, on the chips that matter to what its page says."""
    spec = workload.load((ROOT / "fixtures" / "workloads" / f"{name}.yaml").read_bytes())
    if chips:
        spec = workload.set_path(spec, "constraints.accelerators.allow", chips)
    for path, value in changes.items():
        spec = workload.set_path(spec, path.replace("__", "."), value)
    parsed = workload.parse(spec)
    assert (ROOT / "docs" / "tutorial" / "cases" / f"{name}.md").exists()
    return recommend(parsed, take_snapshot(parsed, default_organisation()))


def sold(slug: str, usd_per_chip_hour: float, as_of: date = TODAY, **changes: Any) -> None:
    values = {
        "provider": "somecloud", "instance": slug, "accelerators": 1, "region": "any", "term": "on_demand",
        "kind": "vm", "smallest_unit_accelerators": 1,
    } | changes  # fmt: skip
    Price.objects.create(
        accelerator=Accelerator.objects.get(slug=slug), usd_per_hour=usd_per_chip_hour, as_of=as_of, source="sample",
        **values,
    )  # fmt: skip


def way(r: dict[str, Any], acquisition: str, term: str) -> dict[str, Any]:
    return next(w for w in r["money"]["ways_to_pay"] if (w["acquisition"], w["term"]) == (acquisition, term))


def meeting(r: dict[str, Any], one: str, other: str) -> dict[str, Any]:
    return next(b for b in r["money"]["break_even"] if b["between"][0] == one and b["between"][1].startswith(other))


def test_a_startup_buys_tokens_all_year() -> None:
    sold("rtx-5090", 0.35)
    found = answer("startup-budget", "[rtx-5090, rtx-4090, l4, mi350x]")
    first, api = found["recommendations"][0], found["hosted"][0]
    assert all(r["usd_per_month"] <= 3000 for r in found["recommendations"])
    assert api["rank_by_cost"] == 1 and api["usd_per_month"] < first["usd_per_month"] < 2000
    met = meeting(first, "rent", "API")
    today = 2 * 1750 * 730 * 3600
    assert met["tokens_per_month"] > 3 * today  # more than it sends after a year
    months = first["money"]["plan"]["months"]
    assert len(months) == 12 and months[0]["hourly_instances"] < months[-1]["hourly_instances"]


def test_a_bank_that_must_own_pays_about_as_much_as_renting_would_cost() -> None:
    r = answer("bank-owned", "[mi300x, h100-pcie]")["recommendations"][0]
    m = r["money"]
    assert r["acquisition"] == "own" and r["region"] == "grid-deu"
    assert r["instances"] >= 2 and r["one_host_lost"]["replicas_left"] >= r["replicas"] - r["spare_replicas"]
    met, rent = meeting(r, "own", "rent"), way(r, "rent", "on_demand")["usd_per_month"]
    assert 0.7 < met["share_of_hours"] < 1.35 and 0.7 < m["usd_per_month"] / rent < 1.35
    assert (met["month"] is None) == (m["usd_per_month"] > rent)
    assert len(m["cash_flow"]) == 61 and m["cash_flow"][-1]["value_left_usd"] > 0
    assert m["energy"]["watts_full"] <= 80_000


def test_a_million_a_day_takes_two_trillion_tokens_a_day() -> None:
    r = answer("million-a-day")["recommendations"][0]
    usd_per_day = r["usd_per_month"] * 12 / 365
    tokens_per_day = 20_000 * 1200 * 86_400
    assert 0.6e6 < usd_per_day < 1.7e6 and r["accelerator_count"] > 10_000
    assert tokens_per_day * r["usd_per_mtok_blended"] / 1e6 == pytest.approx(usd_per_day, rel=1e-3)


@pytest.mark.soak
def test_the_load_of_machines_that_are_always_on_hardly_moves_rent_against_own() -> None:
    found = [
        answer("h100-rent-or-own", traffic__requests_per_s=f"{{mean: {mean}, peak: 10}}")["recommendations"][0]
        for mean in (3, 9)
    ]
    shares = [meeting(r, "own", "rent")["share_of_hours"] for r in found]
    assert min(shares) > 0.5 and max(shares) / min(shares) < 1.1
    tokens = [r["usd_per_mtok_blended"] for r in found]
    assert tokens[0] / tokens[1] == pytest.approx(3, rel=0.05)


def test_at_30_percent_of_the_hours_renting_wins_and_always_on_owning_beats_even_a_commitment() -> None:
    r = answer("h100-rent-or-own")["recommendations"][0]
    own, rent = way(r, "own", "purchase")["usd_per_month"], way(r, "rent", "on_demand")["usd_per_month"]
    assert 0.3 * rent < own < rent
    assert 0.45 < own / way(r, "rent", "reserved_3y")["usd_per_month"] < 0.75


def test_a_commitment_turns_h100_against_v6e() -> None:
    """A v6e has less of everything than an H100: it is dearer at twice the price, and cheaper at a tenth of it."""
    Price.objects.filter(accelerator__slug__in=("h100-sxm", "tpu-v6e")).delete()
    then = date(2025, 3, 1)
    sold("h100-sxm", 3.0, then)
    sold("tpu-v6e", 6.0, then, provider="gcp")
    sold("tpu-v6e", 0.3, then, provider="gcp", term="reserved_3y")
    found = answer("tpu-or-h100")["recommendations"]
    by = {r["accelerator"]: r for r in sorted(found, key=lambda r: -r["usd_per_month"])}
    assert found[0]["accelerator"] == "h100-sxm" and by["tpu-v6e"]["usd_per_month"] > by["h100-sxm"]["usd_per_month"]
    assert way(by["tpu-v6e"], "rent", "reserved_3y")["usd_per_month"] < by["h100-sxm"]["usd_per_month"]
    assert by["tpu-v6e"]["watts"] is None


def test_a_product_that_grows_meets_the_price_of_its_api() -> None:
    found = answer("api-to-own", "[mi355x, mi300x]")
    r = found["recommendations"][0]
    met, today = meeting(r, "rent", "API"), 20 * 2400 * 730 * 3600
    assert today < met["tokens_per_month"] < 3 * today
    assert found["hosted"][0]["usd_per_month"] < r["usd_per_month"] < 1.5 * found["hosted"][0]["usd_per_month"]
    months = [step["from_month"] for step in r["money"]["plan"]["steps"] if step["action"] == "buy"]
    assert len(set(months)) > 1 and min(months) > 1  # servers that are ordered today come later, and more with growth
    assert r["money"]["growth"] is None  # so nothing can be bought for the whole horizon today
    own = answer("api-to-own", "[mi355x, mi300x]", constraints__acquisition="[own, api]")
    growth = next(r for r in own["recommendations"] if r["acquisition"] == "own")["money"]["growth"]
    assert growth["npv_extending_usd"] < growth["npv_all_now_usd"]


@pytest.mark.parametrize("name", ["small-models", "shared-fleet"])
def test_a_portfolio_is_the_sum_of_its_rows_and_saves_what_it_says(name: str) -> None:
    """With one team for all workloads, whether they share machines or not."""
    found = answer_portfolio(name, ["rtx-a5000", "rtx-pro-6000-blackwell", "mi300x"])
    section = found["portfolio"]
    rows = [each["option"]["usd_per_month"] for each in section["alone"]]
    assert section["alone_usd_per_month"] == pytest.approx(sum(rows), abs=0.011)
    if section["shared"]:
        saved = section["alone_usd_per_month"] - section["shared"]["usd_per_month"]
        assert section["saving_usd_per_month"] == pytest.approx(saved, abs=0.02 * len(rows))
    else:
        assert section["money"]["usd_per_month"] == pytest.approx(section["alone_usd_per_month"], abs=0.02 * len(rows))
    parts = sum(part["usd_per_month"] for part in section["money"]["parts"])
    assert section["money"]["usd_per_month"] == pytest.approx(parts, abs=0.1)


def answer_portfolio(name: str, chips: list[str]) -> dict[str, Any]:
    raw = workload.load((ROOT / "fixtures" / "workloads" / f"{name}.yaml").read_bytes())
    files = ROOT / "fixtures" / "workloads"
    parts = [workload.load((files / p).read_bytes()) if isinstance(p, str) else p for p in raw["workloads"]]
    for part in parts:
        part.setdefault("constraints", {})["accelerators"] = {"allow": chips}
    parsed = workload.parse(raw | {"workloads": parts})
    return recommend(parsed, take_snapshot(parsed, default_organisation()))
