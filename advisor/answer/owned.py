"""Machines that are already owned: what they do on their own, what they cost, what is missing, and keep or sell."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.answer.money import CostModel
from advisor.answer.question import Question
from advisor.answer.sentences import counted, likely
from advisor.engine.cost import HOURS_PER_MONTH, STAFF_PART, TEAM, Prices
from advisor.engine.plans import OWNED as KEPT
from advisor.engine.search import (
    EQUAL_FRACTION,
    NEAR_FRACTION,
    OwnedMachines,
    Scored,
    SearchResult,
    describe,
    prices_of,
    rank_uncertainty,
    same,
)
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import number, rounded
from advisor.result import Answer, ApiOption, Option, Owned, OwnedPlan, Team

Json = dict[str, Any]
Array = np.ndarray
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
KEEPS = ("no limit", "reached")  # states of an API that no limit speaks against
UNKNOWN_POWER = "its power is not published, so what these machines cost to run is not known"


def saving_fraction(keep: Scored, usd_per_hour: float) -> float:
    """What something at this cost saves over keeping machines, as a share of that cost with the forgone sale."""
    return 1.0 - usd_per_hour / keep.economic_usd_per_hour


def owned(question: Question, outcome: SearchResult, costs: CostModel) -> list[Owned]:
    """For each accelerator that is owned: what it does alone, and keep it, sell it or add to it over the horizon."""
    prices = prices_of(question)
    ranked = list(enumerate(outcome.shown, 1))
    rows = question.snapshot.assumptions
    row = rows["residual-value-year-1"]
    machines = {m.offer.accelerator: m for m in outcome.owned}
    plans = []
    for slug, count in question.spec["owned"].items():
        alone = machines.get(slug)
        with_it = next(((k, s) for k, s in ranked if _uses(s, slug)), None)
        without = next(((k, s) for k, s in ranked if not _uses(s, slug)), None)
        sale, later = (alone.offer.sale_usd, alone.offer.later_sale_usd) if alone else (0.0, 0.0)
        held = alone.offer.held_instances if alone else 0
        used = kept_instances(with_it[1]) if with_it else 0
        keep, sell = (_plan(way, prices) for way in (with_it, without))
        if sale and sell is not None:
            sell = sell.changed(present_usd=number((sell.present_usd or 0.0) - sale * held))
        if sale and keep is not None:
            sold = sale * (held - used) + later * used * float(prices.present(prices.months))
            keep = keep.changed(present_usd=number((keep.present_usd or 0.0) - sold))
        in_hosts = alone.offer.accelerators * held if alone else 0
        added = _added_instances(with_it[1]) if with_it else 0
        why = next((r.detail for r in outcome.rejections if r.accelerator == slug), "")
        leftover = f"; {count - in_hosts} of {count} do not fill a whole server and are not used"
        compared = _compared(outcome, costs, with_it, without) if with_it and without else None
        plans.append(
            Owned(
                accelerator=slug,
                count=count,
                in_whole_hosts=in_hosts,
                resale_usd=number(sale * held) if sale else None,
                resale_source=f"market value after one year, from the lowest price of a new server; {row['source']}",
                keep=keep,
                adds_hosts=added,
                sell=sell,
                advice="" if keep is None else "keep" if sell is None or keep.rank < sell.rank else "sell",
                idle_hosts=max(held - used, 0) if keep else held,
                sell_saves_fraction=compared[0] if compared else None,
                sell_saves_probability=compared[1] if compared else None,
                said=(_idle(held, used, sale) if keep else "")
                + _keep_or_sell(keep, sell, added, sale * held, compared, why)
                + (leftover if in_hosts < count else ""),
                **(_on_their_own(alone, outcome, why) if alone else {"missing": UNKNOWN_POWER}),
            )
        )
    return plans


def _compared(
    outcome: SearchResult, costs: CostModel, keep: tuple[int, Scored], sell: tuple[int, Scored]
) -> tuple[float, float]:
    """(saving of the option without the machines over keeping them, probability that it costs less)."""
    drawn = costs.usd_per_hour()
    one, other = (
        np.full(1, s.economic_usd_per_hour) if drawn[rank - 1] is None else drawn[rank - 1] for rank, s in (keep, sell)
    )
    saving = saving_fraction(keep[1], sell[1].economic_usd_per_hour)
    return rounded(saving, 4), rounded(float((np.asarray(other) < np.asarray(one)).mean()), 4)


def _idle(held: int, used: int, sale: float) -> str:
    """What the owned servers are worth that the plan leaves idle; empty: none."""
    idle = held - used
    if idle <= 0:
        return ""
    worth = f" (resale value about {usd_text(sale * idle)})" if sale else ""
    other = "the other one is" if idle == 1 and held == 2 else f"{in_words(idle)} {'is' if idle == 1 else 'are'}"
    enough = f"{in_words(used)} of your {in_words(held)} servers {'is' if used == 1 else 'are'} enough"
    return f"{enough}, and {other} free for other uses{worth}; "


def in_words(number: int) -> str:
    """Numbers up to ten as words."""
    return WORDS[number] if number < len(WORDS) else f"{number:,}"


def team_of(workload: Workload, outcome: SearchResult, answer: Answer) -> Team | None:
    """What the team of the first choice costs, and which option would be first without any team's cost."""
    options = [o for o in answer.serving_options if isinstance(o, Option) or o.slo_state in KEEPS]
    if workload.objective != "cost" or not options or options[0] is not answer.recommendations[0]:
        return None
    deployed = [o for o in answer.deployments if o.scale_to_zero is None]
    forgone = {
        o.rank: (s.economic_usd_per_hour - s.usd_per_hour) * HOURS_PER_MONTH
        for o, s in zip(deployed, outcome.shown, strict=False)
    }
    teams = [team_usd_per_month(o) for o in options]
    bare = [o.usd_per_month - team + forgone.get(o.rank, 0.0) for o, team in zip(options, teams, strict=True)]
    least = min(range(len(options)), key=lambda k: (bare[k], k))
    # to displace kept machines takes a saving in most draws, which a team that all pay does not change
    kept = forgone.get(options[0].rank, 0.0) > 0
    least = least if not kept and bare[0] - bare[least] > EQUAL_FRACTION * bare[0] else 0
    changes = f" Without team costs, {options[least].label} would be the first choice." if least else ""
    return Team(
        usd_per_month=rounded(teams[0]),
        first_without_rank=options[least].rank or 1,
        said=f"{_team_cost(options[0], teams[0])}{changes}",
    )


def _team_cost(first: Option | ApiOption, usd_per_month: float) -> str:
    if isinstance(first, ApiOption):
        return "A hosted API needs no team for machines, and its cost counts none."
    return f"The team costs {usd_text(usd_per_month)} a month of it."


def team_usd_per_month(option: Option | ApiOption) -> float:
    """Staff and minimum team of an option; a hosted API needs none."""
    parts = option.money.parts if isinstance(option, Option) and option.money else []
    return math.fsum(p.usd_per_month for p in parts if p.name in (STAFF_PART, TEAM))


def owned_sentence(plans: Sequence[Owned], first_rank: int | None) -> str:
    """What the verdict adds on owned machines: keep them and what stays free, or what selling saves; a space before."""
    for o in plans:
        name = f"{o.count} x {o.accelerator}"
        if o.advice == "keep" and o.keep and o.keep.rank == first_rank:
            return f" Keep {name}: {o.said}."
        if o.keep is not None:
            return f" You own {name}: {o.said}."
    return ""


def _on_their_own(m: OwnedMachines, outcome: SearchResult, why: str) -> Json:
    """The fields of `Owned` about what these machines do without any others."""
    used = m.alone or m.part
    hours = used.usd_per_hour if used else m.offer.usd_per_hour * m.offer.held_instances
    carried = m.carried_fraction
    return {
        "suffices": m.alone is not None,
        "rank": next((k for k, s in enumerate(outcome.shown, 1) if same(s, m.alone)), None) if m.alone else None,
        "label": f"{used.chips:,} x {used.lane.choice.accelerator.name}, {describe(used.lane)}" if used else "",
        "hosts": m.offer.held_instances,
        "hosts_used": used.instances if used else 0,
        "usd_per_month": rounded(hours * HOURS_PER_MONTH),
        "carried_fraction": None if carried is None else rounded(carried, 3),
        "more_hosts": m.more_instances,
        "more_accelerators": m.more_instances * m.offer.accelerators,
        "missing": missing(m, why),
    }


def missing(m: OwnedMachines, why: str) -> str:
    """What these machines lack to serve the workload on their own; empty: nothing."""
    if m.alone is not None:
        return ""
    each = counted(m.offer.accelerators, "accelerator")
    if m.more_instances:
        more = m.more_instances
        return f"{more} more server{'s' if more > 1 else ''} with {each} each would serve the whole load"
    if m.enough is not None:
        return "the machines would serve the whole load, but not within your limits on power, chips or cost"
    reason = f": {why}" if why else ""
    return f"no number of these servers serves the whole load within your limits{reason}"


def _uses(s: Scored, slug: str) -> bool:
    """Whether the deployment keeps owned machines of this chip in service, alone or beside others."""
    return s.lane.choice.accelerator.slug == slug and kept_instances(s) > 0


def kept_instances(s: Scored) -> int:
    """Owned machines that the plan keeps in service in its first month."""
    return int(s.planned.plan.in_service((KEPT,))[0]) if s.planned else 0


def _added_instances(s: Scored) -> int:
    """Machines that the plan buys or rents beside the owned ones in its first month."""
    return max(s.instances - kept_instances(s), 0)


def _plan(ranked: tuple[int, Scored] | None, prices: Prices) -> OwnedPlan | None:
    if ranked is None:
        return None
    rank, s = ranked
    return OwnedPlan(
        rank=rank,
        accelerator=s.lane.choice.accelerator.slug,
        hosts=s.instances,
        usd_per_month=number(s.usd_per_hour * HOURS_PER_MONTH),
        present_usd=number(s.usd_per_hour * HOURS_PER_MONTH * prices.annuity),
    )


def _keep_or_sell(
    keep: OwnedPlan | None,
    sell: OwnedPlan | None,
    added: int,
    resale_usd: float,
    compared: tuple[float, float] | None,
    why: str,
) -> str:
    """Which of the two costs less once the forgone sale counts, as a sentence."""
    worth = f"about {usd_text(resale_usd)}" if resale_usd else "resale price unknown"
    if keep is None:
        return f"no option uses them ({why or 'other options rank before them'}); resale value: {worth}"
    more = f", with {added} more server{'s' if added != 1 else ''} bought or rented," if added else ""
    kept = f"keeping them{more} costs {usd_text(keep.usd_per_month or 0)} a month"
    if sell is None or compared is None:
        return f"{kept}; no option without them is ranked"
    other = (
        f"selling them ({worth}) and using {sell.accelerator} instead costs {usd_text(sell.usd_per_month or 0)} a month"
    )
    saving, often = compared
    counted_in = "with the resale value counted, " if resale_usd else ""
    if saving <= 0:
        return f"{kept}; {other}; {counted_in}keeping costs less"
    unsure = (
        ""
        if saving > NEAR_FRACTION and often >= rank_uncertainty.TOLD_APART
        else ": too little or too uncertain to sell"
    )
    chance = f"with {likely(often)} probability"
    return f"{kept}; {other}; {counted_in}selling costs {saving:.0%} less, {chance}{unsure}"
