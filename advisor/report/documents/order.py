"""The bill of materials that a buyer sends to sellers: what to quote, its specification, and when it is needed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.report.documents.bill import SHARE, BillLine, api_bill, bill_of, item_line, step_line, step_usd
from advisor.report.documents.memos.parts import Memo, Part, Row
from advisor.report.documents.subject import TOTALS_ONLY, chosen, is_early_portfolio
from advisor.report.documents.wording import counted, is_late, months_text, order_text
from advisor.report.text import figure, name_of
from advisor.result import (
    Answer,
    ApiOption,
    Assumption,
    FleetItem,
    Option,
    Plan,
    PlanStep,
    TrainingOption,
    machine_of,
)
from advisor.templatetags.finance import unit_price

PLATFORMS = ("dgx", "hgx")
SUPPLIER = "server supplier"
BUYER = ("buyer", "contact", "delivery address", "date of this request", "quote needed by")
HEAD = ("line", "quantity", "item", "specification", "when", "unit price, USD", "total, USD")
NETWORK, STORAGE, SPARES = "network-fraction-of-hardware", "storage-fraction-of-hardware", "spare-fraction"
TERMS = (
    "Month 1 starts on the date of this request.",
    "Quote each line with its price, currency, delivery date and the date until which the quote holds.",
)
DELIVERY = (
    "Quote prices delivered to the address above. Freight, insurance, customs and installation have their own line.",
    "Name any part that differs from the specification.",
)
RENTAL = (
    "State the price per hour, what a minimum term or a prepayment changes, and whether the capacity is reserved.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderLine(BillLine):
    """A line to quote. The amounts are list prices for comparison; sellers do not see them."""

    line: int = 0
    seller: str = SUPPLIER
    specification: str = ""
    when: str = ""


def order_lines(answer: Answer, r: Option | TrainingOption, plan: Plan) -> list[OrderLine]:
    """What to ask sellers for: the steps of the plan, and what bought servers need beside them."""
    steps = [step for step in plan.steps if step.action != "keep"]
    bought = [step for step in steps if step.action == "buy"]
    lines = [step_order(r, plan, step) for step in steps if step.action == "buy"]
    lines += list(beside(answer.assumptions, bought, plan.capex_usd)) if bought else []
    lines += [step_order(r, plan, step) for step in steps if step.action != "buy"]
    return [replace(line, line=number) for number, line in enumerate(lines, start=1)]


def orders(answer: Answer, rank: int) -> list[tuple[str, OrderLine]]:
    """(workload, line) of everything to quote; "" stands for the only workload.

    Empty where an answer of an earlier version has no plan.
    """
    if answer.portfolio is not None:
        items = answer.portfolio.money.items if answer.portfolio.money else []
        return [(item.for_workload, item_order(item, k)) for k, item in enumerate(filter(is_ordered, items), start=1)]
    option = answer.option(rank)
    if isinstance(option, ApiOption):
        return [("", line) for line in api_order(option)] if option.payments else []
    r = chosen(answer, rank)
    if r.money is None:
        return []
    lines = order_lines(answer, r, r.money.plan) if r.money.plan else [early_order(r, bill_of(r)[0])]
    return [("", line) for line in lines]


def early_order(r: Option | TrainingOption, line: BillLine) -> OrderLine:
    """What an answer without a plan buys or rents."""
    given = {name: getattr(line, name) for name in BillLine.__slots__}
    seller = SUPPLIER if line.action == "buy" else line.provider
    return OrderLine(**given, line=1, seller=seller, specification=r.accelerator_name, when="as agreed")


def is_ordered(item: FleetItem) -> bool:
    return item.is_paid and bool(item.quantity)


def item_order(item: FleetItem, number: int) -> OrderLine:
    """A line of a portfolio's fleet."""
    found, bought = item_line(item), item.action == "buy" or item.unit_usd_once is not None
    hours = f"about {item.paid_hours:,.0f} machine hours in total" if item.paid_hours else ""
    place = f"region {item.region}" if item.region not in ("", "any", "global") and not bought else ""
    given = {name: getattr(found, name) for name in BillLine.__slots__}
    return OrderLine(
        **given | {"item": item.machine or item.item},
        line=number,
        seller=SUPPLIER if bought else item.provider,
        specification=", ".join(filter(None, (item.item if item.machine else "", place, hours))),
        when=f"{months_text(item.from_month, item.until_month or item.from_month)} of service"
        if item.from_month
        else "",
    )


def step_order(r: Option | TrainingOption, plan: Plan, step: PlanStep) -> OrderLine:
    found = step_line(step)
    given = {name: getattr(found, name) for name in BillLine.__slots__}
    if step.action != "buy":
        return OrderLine(**given, seller=step.provider, specification=rented_text(r, plan, step), when=served(step))
    return OrderLine(
        **given | {"item": machine_of(step), "provider": "", "region": ""},
        specification=bought_text(r, step),
        when=needed_text(step),
    )


def bought_text(r: Option | TrainingOption, step: PlanStep) -> str:
    """The specification of one server."""
    s = step.server
    if s is None:
        return step.instance
    said = [f"{model} or equivalent"] if (model := model_text(step.instance)) else []
    if s.host == "estimated":
        said.append("cards, and a machine with slots, power and cooling for them")
    if s.network_cards:
        said.append(f"{counted(s.network_cards, 'network card')} of {figure(s.network_gbit_per_s)} Gbit/s")
    if isinstance(r, Option) and r.host and r.instance == step.instance and s.form != "computer":
        memory = r.host.memory_gib
        amount = f"{memory / 1024:.2g} TiB" if memory >= 1024 else f"{memory:.0f} GiB"
        said.append(f"at least {counted(r.host.cores, 'CPU core')} and {amount} of host memory")
        if r.host.local_disk_gb:
            said.append(f"{figure(r.host.local_disk_gb / 1000)} TB of local disk")
    if s.kw_full:
        cooled = f", {s.cooling} cooling" if s.cooling else ""
        said.append(f"at most {figure(s.kw_full)} kW{cooled}")
    return "; ".join(said)


def needed_text(step: PlanStep) -> str:
    """When to order and deliver a server; a plan that waits for its servers starts with their delivery."""
    order = order_text(step) or "order today"
    if is_late(step):
        return f"{order}, delivery in about {counted(step.order_months_before, 'month')}"
    return f"{order}, in service from month {step.from_month}"


def model_text(product: str) -> str:
    """The vendor's name of a platform from its name in the catalog: HGX B200; empty where it has none."""
    words = product.split("-")
    return f"{words[0].upper()} {words[1].upper()}" if words[0] in PLATFORMS and len(words) > 1 else ""


def rented_text(r: Option | TrainingOption, plan: Plan, step: PlanStep) -> str:
    """The specification of rented machines."""
    bridged = plan.bridge is not None and step.from_month <= plan.bridge.months
    chip = plan.bridge.accelerator_name if bridged and plan.bridge else r.accelerator_name
    terms = {"on_demand": "by the hour", "spot": "by the hour as spot instances"}
    said = [f"{step.accelerators} x {chip} each"] if step.accelerators and chip else []
    said.append(
        terms.get(step.term, step.term.replace("_", " ").replace("1y", "for 1 year").replace("3y", "for 3 years"))
    )
    said += [f"region {step.region}"] if step.region not in ("", "any", "global") else []
    said.append(f"about {step.paid_hours:,.0f} machine hours in total")
    return ", ".join(said)


def served(step: PlanStep) -> str:
    return f"{months_text(step.from_month, step.until_month)} of service"


def beside(assumptions: Sequence[Assumption], bought: Sequence[PlanStep], capex_usd: float) -> Iterator[OrderLine]:
    """What the servers need: network, storage, spare parts, support and freight.

    The first three share what the plan pays for purchases beyond the list prices; no price is known for the others.
    """
    counts = counted(sum(step.instances for step in bought), "machine")
    cards = sum(s.instances * (s.server.network_cards or 0) for s in bought if s.server)
    ports = f"; {counted(cards, 'port')} for the network cards of the accelerators" if cards else ""
    used = {a.name: float(a.value) for a in assumptions if isinstance(a.value, int | float)}
    named = (
        (NETWORK, "network switches, transceivers and cables", f"connect {counts}{ports}"),
        (STORAGE, "shared storage", "capacity and rate as agreed"),
        (SPARES, "spare parts", f"kept on site, about {used.get(SPARES, 0.0):.0%} of the value of the machines"),
    )
    shares = [(used[key], item, text) for key, item, text in named if used.get(key)]
    total, left = math.fsum(share for share, _, _ in shares), capex_usd - math.fsum(map(step_usd, bought))
    for share, item, text in shares:
        usd = round(left * share / total, 2)
        yield replace(part(item, text), unit_usd_once=usd, usd=usd, source=SHARE)
    years = math.ceil(max(s.until_month - s.from_month + 1 for s in bought) / 12)
    yield part("maintenance and support", f"for {counts}, {counted(years, 'year')}; state the response time")
    yield part("freight, insurance, customs and installation", f"{counts}, to the delivery address")


def part(item: str, specification: str) -> OrderLine:
    return OrderLine(
        action="buy",
        quantity=1,
        item=item,
        specification=specification,
        when="with the machines",
        source="to be quoted",
    )


# --- the document -----------------------------------------------------------------------------------------------


def order_document(answer: Answer, rank: int) -> Memo:
    """One table for each seller, without the prices that the buyer knows."""
    lines = [line for _, line in orders(answer, rank)]
    sellers = list(dict.fromkeys(line.seller for line in lines))
    parts = [Part(title="Buyer", rows=[("field", "to be filled in"), *((name, "") for name in BUYER)], is_form=True)]
    for seller in sellers:
        own = [line for line in lines if line.seller == seller]
        title = "For a server supplier" if seller == SUPPLIER else f"For {seller}"
        items = [*TERMS, *(DELIVERY if seller == SUPPLIER else RENTAL)]
        parts.append(Part(title=title, rows=[HEAD, *map(line_row, own)], items=items))
    return Memo(
        kind="Bill of materials",
        title=name_of(answer),
        verdict="Please quote the lines below." if lines else nothing(answer, rank),
        parts=parts if lines else [],
        dated="",
    )


def nothing(answer: Answer, rank: int) -> str:
    """Why there is no line: only owned machines, or an answer of an earlier version."""
    if is_early_portfolio(answer) or (not answer.portfolio and is_early(answer, rank)):
        return TOTALS_ONLY
    return "Nothing has to be ordered: the machines are already there."


def is_early(answer: Answer, rank: int) -> bool:
    """Whether an answer of an earlier version keeps only the totals of this option."""
    return isinstance(answer.option(rank), ApiOption) or chosen(answer, rank).money is None


def line_row(line: OrderLine) -> Row:
    return (str(line.line), f"{line.quantity:,.10g}", line.item, line.specification, line.when, "", "")


def api_order(api: ApiOption) -> list[OrderLine]:
    """The tokens of a hosted API, as lines to quote."""
    return [
        OrderLine(
            **{name: getattr(line, name) for name in BillLine.__slots__},
            line=number,
            seller=api.provider_name or api.provider,
            specification=f"paid per token; list price {unit_price(line.unit_usd_once or 0.0)} per million",
            when=months_text(line.from_month or 1, line.until_month or 1),
        )
        for number, line in enumerate((each for each in api_bill(api) if each.unit_usd_once is not None), start=1)
    ]
