"""A purchase names servers that can be ordered: enough accelerators, the idle ones counted, the same in every place."""

import math
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import workload
from advisor.answer.money.plan import section_of, steps_of
from advisor.engine.cost import Prices
from advisor.engine.plans import Commitment, Overheads, Schedule, plan_of
from advisor.engine.plans.plan import flat_demand
from advisor.engine.search.planned import Planned, ways_under
from advisor.engine.terms import Offer
from advisor.inputs import catalog_of, take_snapshot
from advisor.report import documents
from advisor.report.documents.order import SUPPLIER, orders
from advisor.report.documents.wording import plan_text
from advisor.report.screen import machines as screen
from advisor.result import Answer, Assumption, Option, ServerPurchase, machine_of, machines_text, purchase_of
from advisor.result.money import Plan
from catalog.models import Price, Unit
from catalog.pricing.current import OFFICIAL
from tests.clocks import TODAY
from tests.report import sample_plan

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
MONTHS = 36
ASKED = """
model: meta-llama/Llama-3.2-1B
traffic: {input_tokens: 500, output_tokens: 100, requests_per_s: 2}
constraints: {exclude: [], acquisition: [own]}
"""


@lru_cache
def market() -> tuple[Any, tuple[Offer, ...]]:
    """The catalog, and one offer of every machine to buy."""
    spec = workload.parse(ASKED)
    catalog = catalog_of(spec, take_snapshot(spec))
    bought = {(o.accelerator, o.instance): o for o in catalog.offers if o.term == "purchase"}
    return catalog, tuple(bought.values())


def bought(offer: Offer, accelerators: int) -> tuple[Plan, ServerPurchase]:
    """The plan that buys machines of one kind for this many accelerators, and its purchase."""
    catalog, _ = market()
    (way,) = ways_under(catalog, offer, 0.0, lambda: 1.0)
    servers = math.ceil(accelerators / offer.accelerators)
    owned = Commitment(way=0, start_month=0, until_month=min(MONTHS, way.life_months), instances=servers)
    schedule = Schedule(commitments=(owned,), hourly=())
    plan = plan_of(
        flat_demand(servers, MONTHS), [way], Prices(months=MONTHS, discount_fraction=0.08), schedule, Overheads()
    )
    steps = list(steps_of(catalog, Planned(plan=plan, offers=(offer,)), superseded=False))
    section = section_of(plan, steps, [], {}, None)
    found = purchase_of(section, accelerators)
    assert found is not None
    return section, found


def purchases() -> Iterator[tuple[Offer, int]]:
    return ((offer, count) for offer in market()[1] for count in range(1, 41))


def test_every_accelerator_with_a_whole_machine_to_buy_is_among_the_offers() -> None:
    slugs = {offer.accelerator for offer in market()[1]}
    whole = Price.objects.filter(term="purchase", kind__in=("server", "rack", "system")).exclude(
        accelerator__tdp_watts=None
    )
    sold = Unit.objects.filter(kind__in=("host", "rack"), price_usd__isnull=False).exclude(accelerator__tdp_watts=None)
    known = {*whole.values_list("accelerator__slug", flat=True), *sold.values_list("accelerator__slug", flat=True)}
    fresh = {slug for slug in known if slug in {a.slug for a in market()[0].accelerators}}
    assert len(slugs) > 30 and len(fresh & slugs) > 10


def test_the_servers_hold_the_accelerators_and_the_lines_add_up() -> None:
    for offer, count in purchases():
        plan, p = bought(offer, count)
        assert p.accelerators >= count and p.accelerators - count < offer.accelerators
        assert (p.accelerators_needed, p.idle_accelerators) == (count, p.accelerators - count)
        assert sum(o.servers * o.accelerators for o in p.orders) == p.accelerators
        assert p.servers == sum(o.servers for o in p.orders) == math.ceil(count / offer.accelerators)
        assert p.servers_usd == pytest.approx(sum(o.servers * o.unit_usd for o in p.orders))
        assert p.capital_usd == plan.capex_usd == pytest.approx(p.servers_usd + p.beside_usd, abs=0.01)
        (order,) = p.orders
        assert order.unit_usd == pytest.approx(offer.purchase_usd) and order.order_month == 0
        assert order.support_usd_per_year == pytest.approx(0.08 * p.servers_usd, abs=0.01 * p.servers)
        assert order.kw == pytest.approx((offer.full_watts or 0.0) / 1e3)
        assert p.orderable == offer.orderable == (order.host != "no_server")
        assert (f"{p.idle_accelerators:,} idle" in p.said) == (p.idle_accelerators > 0)


def memo_answer(plan: Plan, p: ServerPurchase, count: int) -> Answer:
    """The sample answer with this plan as its first option."""
    found = Answer.read(sample_plan.result())
    first = found.recommendations[0]
    assert isinstance(first, Option) and first.money is not None
    name = p.orders[0].accelerator_name
    money = first.money.changed(plan=plan, purchase=p)
    first = first.changed(money=money, accelerator_name=name, accelerator_count=count, acquisition="own")
    first = first.changed(instance=plan.steps[0].instance, instances=p.servers, provider="own")
    beside = {"network-fraction-of-hardware": 0.125, "spare-fraction": 0.05}
    used = [Assumption(name=key, value=value, unit="fraction", source="x") for key, value in beside.items()]
    answer = found.changed(recommendations=[first, *found.recommendations[1:]], assumptions=used)
    return answer.changed(decision=answer.decide())


@pytest.mark.parametrize("count", [1, 5, 8, 9, 33])
def test_all_words_state_the_same_servers(count: int) -> None:
    for offer in market()[1]:
        plan, p = bought(offer, count)
        servers = machines_text(p.servers, machine_of(plan.steps[0]))
        answer = memo_answer(plan, p, count)
        memo = documents.memo(answer)
        assert servers in plan.said and servers in p.said and plan_text(plan) == f"buy {servers}"
        assert memo.title.endswith(f": buy {servers}") and f"Buy {servers}: $" in memo.verdict
        (signed,) = next(part.rows for part in memo.parts if part.title == "What to sign")[1:]
        assert signed[0] == f"buy {servers}"
        lines = [line for _, line in orders(answer, 1)]
        assert (lines[0].quantity, lines[0].item) == (p.servers, machine_of(plan.steps[0]))
        assert {line.seller for line in lines} == {SUPPLIER}
        assert sum(line.unit_usd_once * line.quantity for line in lines if line.unit_usd_once) == pytest.approx(
            plan.capex_usd, abs=0.02
        )
        assert answer.decision is not None and answer.decision.purchase == p
        said = screen.signed(answer.recommendations[0])
        assert said.startswith((f"buy {screen.count_word(p.servers)} ", f"buy {p.servers:,} × ")), said


def test_a_bill_of_materials_has_no_word_of_the_planner() -> None:
    """It goes to a seller: parts, quantities, specifications and blanks, no prices, slugs or costs of running."""
    for offer in market()[1]:
        plan, p = bought(offer, 9)
        text = documents.order_text(memo_answer(plan, p, 9), 1)
        for word in (
            "$",
            "own-site",
            "resale",
            "staff",
            "colocation",
            "vllm",
            "assumptions",
            "None",
            "USD,",
            "8x-node",
        ):
            assert word not in text, (word, offer.instance)
        for word in ("delivery address", "date of this request", "| 1 | ", "freight", "maintenance and support"):
            assert word in text, word


def test_cards_without_a_machine_are_marked() -> None:
    """A GPU server takes passive cards and a workstation one card; more need a chip that somebody has in a machine."""
    _, offers = market()
    marked = [o for o in offers if not o.orderable]
    assert marked and all(o.form == "workstation" and o.accelerators > 1 and o.estimated_host for o in marked)
    slugs = {o.accelerator for o in marked}
    rented = Price.objects.filter(as_of__year=TODAY.year, usd_per_hour__gt=0, origin__in=OFFICIAL)
    assert not slugs & {*rented.values_list("accelerator__slug", flat=True)}
    assert not slugs & {*Unit.objects.filter(watts__gt=0).values_list("accelerator__slug", flat=True)}
    for o in marked:
        assert "no server is known" in bought(o, o.accelerators)[1].said
        single = next(each for each in offers if each.accelerator == o.accelerator and each.accelerators == 1)
        assert single.orderable  # of the same card, one in a workstation of its own


def step(action: str, first: int, last: int, servers: int = 1, size: int = 8, lead: float = 0.0) -> Any:
    return SimpleNamespace(
        action=action, from_month=first, until_month=last, instances=servers, accelerators=size, instance="s",
        order_months_before=lead, unit_usd_once=100.0 if action == "buy" else None, price_as_of="", price_source="",
        server=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "replicas", "each", "said"),
    [
        ([step("buy", 1, 36)], [2] * 36, 2, (8, 4, 4, 8, 4, [0])),
        (
            [step("buy", 11, 36, lead=10), step("buy", 25, 36, lead=10)],
            [1] * 24 + [5] * 12,
            2,
            (16, 10, 6, 8, 2, [0, 15]),
        ),
        ([step("keep", 1, 36), step("buy", 3, 36, lead=1)], [6] * 36, 2, (8, 4, 4, 8, 4, [2])),
        ([step("buy", 1, 18), step("buy", 19, 36, lead=0.5)], [4] * 36, 2, (8, 8, 0, 8, 8, [0, 18])),
        ([step("rent", 1, 36, size=1), step("buy", 1, 36)], [6] * 36, 2, (8, 8, 0, 8, 8, [0])),
    ],
    ids=["part of a server", "grows", "owned first", "replaced", "rents beside"],
)  # fmt: skip
def test_idle_accelerators_over_time(steps: list[Any], replicas: list[int], each: int, said: tuple[Any, ...]) -> None:
    months = [SimpleNamespace(month=k, replicas=n) for k, n in enumerate(replicas, start=1)]
    plan: Any = SimpleNamespace(steps=steps, months=months, capex_usd=235.0)
    p = purchase_of(plan, replicas[0] * each, replicas[0])
    assert p is not None and p.capital_usd == p.servers_usd + p.beside_usd
    found = (p.accelerators, p.accelerators_needed, p.idle_accelerators)
    orders_in = [order.order_month for order in p.orders]
    assert (*found, p.first_accelerators, p.first_accelerators_needed, orders_in) == said


def test_nothing_is_bought_by_a_rent() -> None:
    plan: Any = SimpleNamespace(steps=[step("rent", 1, 36)], months=[], capex_usd=0.0)
    assert purchase_of(plan, 8) is None is purchase_of(None, 8)
