"""Prices that look like a mistake are held on import, with the comparison, until a person decides."""

import json
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.models import Accelerator, HeldPrice, Organisation, Price, PriceImport
from catalog.pricing import checks as price_checks
from catalog.pricing import imports as price_imports
from tests.clocks import TODAY

HEAD = (
    "provider,instance,accelerator,accelerators,region,vcpus,host_memory_gib,term,usd_per_hour,purchase_usd,kind,as_of,"
    "source,notes\n"
)


def row(usd: float = 2.5, chips: int = 1, provider: str = "new", **changes):
    return {
        "provider": provider, "instance": "one", "region": "any", "accelerator": "h100-sxm", "accelerators": chips,
        "term": "on_demand", "kind": "vm", "as_of": TODAY, "usd_per_hour": Decimal(str(usd)), "purchase_usd": None,
        **changes,
    }  # fmt: skip


MARKET = price_checks.market_of([row(usd, provider=f"p{usd}") for usd in (2.0, 2.4, 2.5, 3.0, 4.0)], TODAY)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (row(2.10, chips=8), "the price of one chip instead of 8"),
        (row(20.0, chips=1), "the price of 8 chips instead of 1"),
        (row(0.25), "decimal point"),
        (row(210.0), "decimal point"),
        (row(0.5), "placeholder"),
        (row(700.0), "placeholder"),
        (row(150.0), "check the unit, the currency"),
        (row(as_of=TODAY + timedelta(days=1)), "in the future"),
        (row(purchase_usd=Decimal(30000)), "a rent and a purchase price"),
    ],
)  # fmt: skip
def test_mistakes_are_named(given, said: str):
    assert said in price_checks.suspicion(given, MARKET, TODAY)


@pytest.mark.parametrize("given", [row(2.5), row(1.2), row(6.9), row(20.0, chips=8), row(0.9)])
def test_usual_prices_pass(given):
    assert price_checks.suspicion(given, MARKET, TODAY) == ""


def test_a_comparison_needs_three_other_current_prices_paid_in_the_same_way():
    two = price_checks.market_of([row(2.0, provider="a"), row(2.4, provider="b")], TODAY)
    assert price_checks.suspicion(row(0.1), two, TODAY) == ""
    old = [row(usd, provider=f"p{usd}", as_of=TODAY - timedelta(days=500)) for usd in (2.0, 2.4, 2.5)]
    assert price_checks.suspicion(row(0.1), price_checks.market_of(old, TODAY), TODAY) == ""
    assert price_checks.suspicion(row(0.1, term="spot"), MARKET, TODAY) == ""


def test_a_price_in_another_currency_is_named_with_the_currency():
    rates = {"EUR": 0.89, "JPY": 157.67, "INR": 96.32}
    assert "looks like a price in INR" in price_checks.suspicion(row(240.0), MARKET, TODAY, per_usd=rates)
    assert "looks like a price in JPY" in price_checks.suspicion(row(400.0), MARKET, TODAY, per_usd=rates)
    assert price_checks.suspicion(row(2.2), MARKET, TODAY, per_usd=rates) == ""


def test_a_price_near_that_of_the_same_instance_elsewhere_is_accepted():
    dear = [row(20.0, provider="azure", region="west"), *(row(usd, provider=f"p{usd}") for usd in (2.0, 2.4, 2.5))]
    market = price_checks.market_of(dear, TODAY)
    assert price_checks.suspicion(row(21.0, provider="azure", region="north"), market, TODAY) == ""
    assert "8 chips instead of 1" in price_checks.suspicion(row(21.0, provider="other", region="north"), market, TODAY)
    assert "8 chips instead of 1" in price_checks.suspicion(dear[0], market, TODAY, stored=True)


@pytest.mark.parametrize("on_demand", [1.0, 4.0, 30.0])
@pytest.mark.parametrize(("share", "right"), [(0.11, True), (0.5, True), (1.0, True), (0.05, False), (8.0, False)])
def test_a_spot_price_is_judged_by_what_the_seller_asks_on_demand(on_demand: float, share: float, right: bool):
    spots = [row(on_demand * 0.6, provider=f"s{k}", term="spot") for k in range(4)]
    known = [*spots, row(on_demand), row(on_demand * 9, region="dear")]
    given = row(on_demand * share, term="spot")
    market = price_checks.market_of(known, TODAY)
    assert (price_checks.suspicion(given, market, TODAY) == "") == right
    without = price_checks.market_of(spots, TODAY)
    if not right:
        assert price_checks.suspicion(given, without, TODAY)


def test_an_average_is_no_price_to_compare_with():
    averages = [row(2.0, provider=f"p{k}") | {"origin": "index"} for k in range(5)]
    assert price_checks.suspicion(row(9.0), price_checks.market_of(averages, TODAY), TODAY) == ""


def test_an_offer_is_not_compared_with_itself():
    own = price_checks.market_of([row(9.0, provider="new")] * 5, TODAY)
    assert price_checks.suspicion(row(1.0), own, TODAY) == ""


@pytest.fixture
def market(db) -> None:
    chip = Accelerator.objects.create(
        slug="h100-sxm", name="H100", vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1,
        as_of="2026-01-01",
    )  # fmt: skip
    for usd in ("2.0", "2.4", "2.5", "3.0"):
        Price.objects.create(
            provider=f"p{usd}", instance="one", accelerator=chip, accelerators=1, region="any", term="on_demand",
            usd_per_hour=Decimal(usd), kind="vm", as_of=TODAY, source="list",
        )  # fmt: skip


def write(folder: Path, *lines: str) -> Path:
    path = folder / "prices.csv"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return path


def offer(name: str, chips: int, usd: str) -> str:
    return f"cloud,{name},h100-sxm,{chips},any,,,on_demand,{usd},,vm,{TODAY},list,"


def run(*args: object, **options: object) -> str:
    out = StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue()


@pytest.mark.usefixtures("market")
def test_a_suspicious_row_is_held_and_the_others_are_added(tmp_path: Path):
    path = write(tmp_path, offer("eight", 8, "2.10"), offer("single", 1, "2.60"))
    out = run("import_prices", path, "--from", "csv", "--by", "ann")
    (held,) = HeldPrice.objects.all()
    assert "1 created" in out and "the price of one chip instead of 8: $0.263 per chip-hour" in out
    assert list(Price.objects.filter(provider="cloud").values_list("instance", flat=True)) == ["single"]
    done = PriceImport.objects.get()
    assert (done.made_by, done.file_name, done.created_rows, held.price_import) == ("ann", "prices.csv", 1, done)
    assert done.made_at is not None

    assert f"{held.pk}: cloud eight any h100-sxm x8 on_demand at $2.10 of" in run("prices", "held")
    (told,) = json.loads(run("prices", "held", "--json"))
    assert told["id"] == held.pk and told["reason"] == held.reason

    run("prices", "release", str(held.pk), "--by", "bob")
    held.refresh_from_db()
    assert (held.state, held.decided_by) == ("released", "bob") and held.decided_at is not None
    assert Price.objects.get(provider="cloud", instance="eight").usd_per_hour == Decimal("2.10")
    assert run("prices", "held") == "held prices: 0\n"


@pytest.mark.usefixtures("market")
def test_a_held_row_can_be_discarded_once(tmp_path: Path):
    run("import_prices", write(tmp_path, offer("eight", 8, "2.10")), "--from", "csv")
    held = HeldPrice.objects.get()
    run("prices", "discard", str(held.pk))
    assert not Price.objects.filter(provider="cloud").exists()
    with pytest.raises(CommandError, match=f"no held price {held.pk}") as refused:
        run("prices", "release", str(held.pk))
    assert refused.value.returncode == 2


@pytest.mark.usefixtures("market")
def test_releases_are_all_or_none(tmp_path: Path):
    run("import_prices", write(tmp_path, offer("eight", 8, "2.10")), "--from", "csv")
    held = HeldPrice.objects.get()
    with pytest.raises(CommandError, match="no held price 999"):
        run("prices", "release", str(held.pk), "999")
    held.refresh_from_db()
    assert held.state == "held" and not Price.objects.filter(provider="cloud").exists()


@pytest.mark.usefixtures("market")
def test_a_dry_run_shows_what_would_be_held_and_keeps_nothing(tmp_path: Path):
    out = run("import_prices", write(tmp_path, offer("eight", 8, "2.10")), "--from", "csv", "--dry-run")
    assert "instead of 8" in out and not HeldPrice.objects.exists() and not PriceImport.objects.exists()


@pytest.mark.usefixtures("market")
def test_a_released_private_price_stays_private(tmp_path: Path):
    ours = Organisation.objects.create(slug="ours", name="Ours")
    path = write(tmp_path, offer("eight", 8, "2.10"))
    run("import_prices", path, "--from", "csv", "--organization", "ours")
    price_imports.release(HeldPrice.objects.get().pk, "ann")
    assert Price.objects.get(provider="cloud").organisation == ours


@pytest.mark.usefixtures("market")
def test_stored_prices_are_checked_too():
    Price.objects.filter(provider="p2.0").update(usd_per_hour=Decimal("0.02"))
    out = run("prices", "check")
    assert "p2.0 one any on_demand: looks like a decimal point" in out
    assert out.endswith("1 of 4 stored prices look like a mistake\n")
