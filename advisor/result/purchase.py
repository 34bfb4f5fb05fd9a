"""The purchase of a plan: which servers to order and when, and how many of their accelerators are needed."""

import math
from collections.abc import Sequence

from advisor.result.decision import most_accelerators
from advisor.result.money import Plan, PlanStep, ServerOrder, ServerPurchase
from advisor.result.options.option import Option
from advisor.result.options.training_option import TrainingOption

NO_SERVER = "no_server"
PLURALS = {"server": "servers", "rack": "racks", "workstation": "workstations"}


def purchase_of(
    plan: Plan | None, accelerators: int, replicas: int = 1, spare_replicas: int = 0
) -> ServerPurchase | None:
    """The servers that a plan buys; None: it buys none.

    accelerators: of all replicas, of which some are spare, in the first month of service.
    """
    bought = [step for step in plan.steps if step.action == "buy"] if plan else []
    if plan is None or not bought:
        return None
    orders = [order_of(step) for step in bought]
    most = most_accelerators(bought)
    by_month = needed_by_month(plan, bought, accelerators, replicas)
    needed, first = max(by_month.values()), min(by_month)
    paid = math.fsum(order.usd for order in orders)
    purchase = ServerPurchase(
        orders=orders,
        servers=sum(order.servers for order in orders),
        accelerators=most,
        accelerators_needed=needed,
        idle_accelerators=most - needed,
        first_accelerators=in_service(bought, first),
        first_accelerators_needed=by_month[first],
        spare_accelerators=min(round(accelerators / replicas * spare_replicas), needed),
        servers_usd=paid,
        beside_usd=round(plan.capex_usd - paid, 2),
        capital_usd=plan.capex_usd,
        orderable=all(order.host != NO_SERVER for order in orders),
        said="",
    )
    return purchase.changed(said=purchase_text(purchase))


def purchase_in(r: Option | TrainingOption) -> ServerPurchase | None:
    """The servers that an option buys, in answers of earlier versions too; None: none."""
    if r.money is None or r.money.purchase is not None:
        return r.money.purchase if r.money else None
    if isinstance(r, Option):
        return purchase_of(r.money.plan, r.accelerator_count, r.replicas, r.spare_replicas)
    return purchase_of(r.money.plan, r.accelerator_count)


def order_of(step: PlanStep) -> ServerOrder:
    """One step of a plan that buys, as an order."""
    server = step.server
    support = server.support_usd_per_year if server else None
    return ServerOrder(
        servers=step.instances,
        said=servers_text(step.instances, step),
        product=step.instance,
        accelerator_name=server.accelerator_name if server else "",
        accelerators=step.accelerators,
        unit_usd=step.unit_usd_once or 0.0,
        usd=step.instances * (step.unit_usd_once or 0.0),
        order_month=order_month(step),
        service_month=step.from_month,
        delivery_months=step.order_months_before,
        host=server.host if server else "",
        form=server.form if server else "",
        network_cards=server.network_cards if server else None,
        network_gbit_per_s=server.network_gbit_per_s if server else None,
        kw=(server.kw_full or None) if server else None,
        cooling=server.cooling if server else "",
        rack_fraction=server.rack_fraction if server else None,
        support_usd_per_year=None if support is None else support * step.instances,
        price_as_of=step.price_as_of,
        price_source=step.price_source,
    )


def order_month(step: PlanStep) -> int:
    """The month of the plan in which a purchase has to be ordered; 0: today."""
    elapsed = step.from_month - 1 - step.order_months_before
    return math.floor(elapsed) + 1 if elapsed > 0 else 0


def machine_name(form: str, accelerators: int, accelerator_name: str, product: str) -> str:
    """One bought machine in words: server with 8 x B200; a computer, or one of unknown form, by its product name."""
    if not accelerator_name or form not in PLURALS:
        return product
    return f"{form} with {accelerators} x {accelerator_name}"


def machine_of(step: PlanStep) -> str:
    """One machine of a step in words; of a rent its instance."""
    form, name = (step.server.form, step.server.accelerator_name) if step.server else ("", "")
    return machine_name(form, step.accelerators, name, step.instance)


def machines_text(count: float, machine: str) -> str:
    """Several machines in words: 2 servers with 8 x B200, 3 x p5.48xlarge."""
    form, _, rest = machine.partition(" ")
    if form not in PLURALS or not rest.startswith("with "):
        return f"{count:,.10g} x {machine}"
    return f"{count:,.10g} {form if count == 1 else PLURALS[form]} {rest}"


def servers_text(count: int, step: PlanStep) -> str:
    """Machines of a step in words: 2 servers with 8 x B200."""
    return machines_text(count, machine_of(step))


def purchase_text(p: ServerPurchase) -> str:
    """A purchase in one line: all servers, when to order them, and how many accelerators are idle or spare."""
    parts: list[str] = []
    for k, order in enumerate(p.orders):
        more = k > 0 and order.product == p.orders[k - 1].product
        what = f"{order.servers:,} more" if more else order.said
        parts.append(f"{what} to order {when_text(order)}")
    months = max(order.delivery_months for order in p.orders)
    said = f"{joined(parts)}{f' (delivery takes about {months_text(months)})' if months else ''}"
    said += f"; {use_text(p)}" if p.accelerators > 1 else ""
    return said if p.orderable else f"{said}; no server is known for these accelerators"


def use_text(p: ServerPurchase) -> str:
    """How many of the accelerators run replicas, at first and at the highest load, and how many are idle or spare."""
    spare = f" ({p.spare_accelerators:,} of them for spare replicas)" if p.spare_accelerators else ""
    idle = f", {p.idle_accelerators:,} idle" if p.idle_accelerators else ""
    said = f"{p.accelerators_needed:,} of {p.accelerators:,}"
    if (p.first_accelerators_needed, p.first_accelerators) == (p.accelerators_needed, p.accelerators):
        return f"{said} accelerators in use{spare}{idle}"
    first = f"{p.first_accelerators_needed:,} of {p.first_accelerators:,} accelerators in use at first"
    return f"{first}, {said} at the highest load{spare}{idle}"


def when_text(order: ServerOrder) -> str:
    return f"in month {order.order_month}" if order.order_month else "today"


def months_text(months: float) -> str:
    number = f"{months:.2g}"
    return f"{number} month" if number == "1" else f"{number} months"


def joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


# --- accelerators over time -------------------------------------------------------------------------------------


def in_service(steps: Sequence[PlanStep], month: int) -> int:
    """Accelerators in the machines of the steps in a month."""
    return sum(s.instances * s.accelerators for s in steps if s.from_month <= month <= s.until_month)


def needed_by_month(plan: Plan, bought: Sequence[PlanStep], accelerators: int, replicas: int) -> dict[int, int]:
    """Accelerators of bought servers that run replicas, by month of service; owned servers are filled first.

    accelerators: of this number of replicas.
    """
    kept = [step for step in plan.steps if step.action == "keep"]
    first = min(step.from_month for step in bought)
    total = {m.month: -(-m.replicas * accelerators // replicas) for m in plan.months if m.month >= first}
    total = total or {step.from_month: accelerators for step in bought}
    return {
        month: min(max(needed - in_service(kept, month), 0), in_service(bought, month))
        for month, needed in total.items()
    }
