"""The table of the first screen: the first choice, runner-ups of another kind, and the cheapest hosted API."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.report.asked import spec_of
from advisor.report.screen.facts import cheapest_api, expected_of, expected_usd, foreseen, in_this_unit, per
from advisor.report.screen.machines import Ranked, chip_name, on, separate, short
from advisor.result import Answer, ApiOption, Decision, HostedOffer, NearMiss, Option, Rejection, TrainingOption
from advisor.templatetags.units import dollars

MOST_ROWS = 4
MOST_PORTFOLIO_ROWS = 8
NEAR = 0.02  # amounts that differ by less count as the same
SURER = 0.05  # probabilities likewise
UNKNOWN = "–"
NUMBERS = (1, 2, 3)  # columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One choice."""

    what: str
    usd: str
    usd_per_mtok: str
    probability: str
    why: str  # not first
    rank: int | None = None  # of the option that the row links to

    def cells(self) -> list[str]:
        return [self.what, self.usd, self.usd_per_mtok, self.probability, self.why]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    heads: tuple[str, ...]
    rows: tuple[Row, ...]

    def words(self) -> list[str]:
        """All that it shows."""
        return [*self.heads, *(cell for row in self.rows for cell in row.cells())]

    def head(self) -> list[tuple[str, bool]]:
        """The heads of the columns that say something, and whether they are numbers."""
        return [(self.heads[i], i in NUMBERS) for i in self.filled()]

    def body(self) -> list[tuple[Row, list[tuple[str, bool]]]]:
        """Each row with its cells, likewise."""
        return [(row, [(row.cells()[i], i in NUMBERS) for i in self.filled()]) for row in self.rows]

    def filled(self) -> list[int]:
        return [i for i in range(len(self.heads)) if any(row.cells()[i] not in ("", UNKNOWN) for row in self.rows)]


def table_of(answer: Answer, decision: Decision, most: int = MOST_ROWS) -> Table:
    """At most so many rows; the first choice and the cheapest hosted API are always there."""
    if answer.portfolio is not None:
        return Table(heads=("Choice", "$ a month", "", "", "Why not first"), rows=of_portfolio(answer, decision))
    first = answer.recommendations[0]
    heads = ("Choice", f"$ {per(first)}", unit_of(first), goal_of(first), "Why not first")
    return Table(heads=heads, rows=tuple(rows(answer, decision, most)))


def unit_of(option: Ranked) -> str:
    """What the second amount is for."""
    if isinstance(option, TrainingOption):
        return "$ per M trained tokens"
    counted = option.unit_cost if isinstance(option, Option) else None
    if counted is None:
        return "$ per M tokens"
    return f"$ per {counted.unit}" if counted.count == 1 else f"$ per {counted.count:,} {counted.unit}s"


def goal_of(option: Ranked) -> str:
    late = isinstance(option, TrainingOption) or (isinstance(option, Option) and option.batch)
    return "Meets the deadline" if late else "Meets the limits"


def rows(answer: Answer, decision: Decision, most: int) -> list[Row]:
    first = answer.recommendations[0]
    api = cheapest_api(answer)
    shown = runner_ups(answer, most - 1 - (api is not None and not same_api(api, first)))
    found = [row(first, answer, decision), *(row(each, answer, decision) for each in shown)]
    ranked = next((each for each in answer.recommendations if isinstance(each, ApiOption)), None)
    if ranked is not None and ranked not in (first, *shown):
        return [*found, row(ranked, answer, decision)]  # the constraints allow it, which not every cheaper one can say
    if api is None or any(same_api(api, each) for each in (first, *shown)):
        return found
    return [*found, api_row(api, answer)]


def same_api(offer: HostedOffer, option: Ranked) -> bool:
    return isinstance(option, ApiOption) and (offer.provider, offer.name) == (option.provider, option.name)


def kind(option: Ranked) -> tuple[str, str, str]:
    """What makes an option another choice: chip, seller and way to pay."""
    if isinstance(option, ApiOption):
        return ("", option.provider, "api")
    return (chip_name(option.accelerator_name), option.provider, option.term)


def distinct(options: Sequence[Ranked]) -> list[Ranked]:
    """The best option of each chip, seller and way to pay; its variants are no choices of their own."""
    found: dict[tuple[str, str, str], Ranked] = {}
    for option in options:
        found.setdefault(kind(option), option)
    return list(found.values())


def runner_ups(answer: Answer, most: int) -> list[Ranked]:
    """The next choices in their order; machines that are already owned are always among them."""
    others = distinct(answer.recommendations)[1:]
    shown = others[: max(most, 0)]
    if (own := next((o for o in others if o.provider == "owned"), None)) is not None and own not in shown:
        shown = [*shown[: max(most - 1, 0)], own]
    return shown


def row(option: Ranked, answer: Answer, decision: Decision) -> Row:
    is_first = option is answer.recommendations[0]
    usd = in_this_unit(decision, option, expected_usd(decision)) if is_first else expected_of(option)
    return Row(
        what=short(option),
        usd=dollars(usd),
        usd_per_mtok=dollars(unit_usd(option)),
        probability=probability(option),
        why="First choice" if is_first else why_not(option, answer, decision),
        rank=option.rank,
    )


def unit_usd(option: Ranked) -> float | None:
    if isinstance(option, TrainingOption):
        return option.usd_per_mtok
    counted = option.unit_cost if isinstance(option, Option) else None
    return counted.usd if counted else option.usd_per_mtok_blended


def met(option: Ranked) -> float | None:
    return option.deadline_probability if isinstance(option, TrainingOption) else option.slo_probability


def probability(option: Ranked) -> str:
    if isinstance(option, ApiOption):
        return "not verified" if option.meets_slo is None else UNKNOWN
    found = met(option)
    return UNKNOWN if found is None else foreseen(found)


def why_not(option: Ranked, answer: Answer, decision: Decision) -> str:
    """Why an option is not first, in a few words."""
    first = answer.recommendations[0]
    ratio = expected_of(option) / expected_of(first) if expected_of(first) else 1.0
    if option.provider == "owned" and any(own.advice == "sell" and own.suffices for own in answer.owned):
        return "selling them is worth more"
    against = drawbacks(option, first)
    if option.rank in decision.tied_ranks:
        return ", ".join(["tied", *against[:1]])
    if ratio > 1 + NEAR:
        return ", ".join(["costs more", *against[:1]])
    start = "cheaper, but " if ratio < 1 - NEAR else ""
    goal = str(spec_of(answer).get("objective") or "cost")
    behind = f"ranks behind by {goal}" if goal != "cost" else "costs slightly more" if ratio > 1 else "ranks behind"
    return start + (" and ".join(against[:2]) or behind)


def drawbacks(option: Ranked, first: Ranked) -> list[str]:
    """What speaks against an option beside its cost."""
    found = []
    mine, best = met(option), met(first)
    if isinstance(option, ApiOption):
        return ["latency not verified"] if option.meets_slo is None else []
    if mine is not None and best is not None and mine < best - SURER:
        late = isinstance(option, TrainingOption) or (isinstance(option, Option) and bool(option.batch))
        found.append(f"less sure to meet the {'deadline' if late else 'limits'}")
    if option.price_weakness and not getattr(first, "price_weakness", ""):
        found.append("its price is weak")
    if option.sold_out_on and not getattr(first, "sold_out_on", ""):
        found.append(f"sold out on {option.sold_out_on}")
    if option.acquisition == "own" and option.provider != "owned" and first.acquisition != "own":
        found.append("commits you to a purchase")
    elif option.term.startswith("reserved") and not getattr(first, "term", "").startswith("reserved"):
        found.append("binds you for its term")
    return found


def api_row(offer: HostedOffer, answer: Answer) -> Row:
    return Row(
        what=f"Hosted API of {offer.provider_name or offer.provider}",
        usd=dollars(offer.usd_per_month),
        usd_per_mtok=dollars(offer.usd_per_mtok_blended),
        probability={"missed": "missed", "no limit": UNKNOWN, "reached": "as published"}.get(
            offer.slo_state, "not verified"
        ),
        why=api_reason(offer, answer),
        rank=offer.rank,
    )


def api_reason(offer: HostedOffer, answer: Answer) -> str:
    """Why the cheapest hosted API is not first."""
    first = answer.recommendations[0] if answer.recommendations else None
    allowed = (spec_of(answer).get("constraints") or {}).get("acquisition") or []
    reasons = []
    if allowed and "api" not in allowed and not answer.has_apis:
        reasons.append("not among your ways to pay")
    if offer.slo_state == "missed":
        reasons.append("too slow as published")
    elif not reasons and offer.rejection is not None and offer.rejection.reason == "excluded":
        reasons.append("outside your constraints")
    if not offer.within_budget:
        reasons.append("over your budget")
    if offer.slo_state in ("not verified", "disputed"):
        published = offer.published_output_tokens_per_s
        reasons.append("latency not verified" if published else "no published speed")
    if not reasons and first is not None and offer.usd_per_month > first.usd_per_month:
        reasons.append("costs more")
    return ", ".join(reasons[:2]) or "ranks behind"


# --- fleets, and nothing feasible -------------------------------------------------------------------------------


def of_portfolio(answer: Answer, decision: Decision) -> tuple[Row, ...]:
    """The shared fleet and each workload alone, the cheaper first."""
    p = answer.portfolio
    if p is None:
        return ()
    found = []
    shared, alone = p.shared.usd_per_month if p.shared else None, p.alone_usd_per_month
    if shared is not None:
        found.append((shared, "One shared fleet"))
    if alone is not None:
        found.append((alone, "Each workload on its own machines"))
    found.sort()
    lines = [(what, usd, "costs more" if n else "First choice") for n, (usd, what) in enumerate(found)]
    if separate(answer):
        lines += [
            (f"– {each.name}: {on(each.option)}", each.option.usd_per_month, "") for each in p.alone if each.option
        ]
    return tuple(
        Row(what=what, usd=dollars(usd), usd_per_mtok="", probability="", why=why, rank=None)
        for what, usd, why in lines[:MOST_PORTFOLIO_ROWS]
    )


def near_misses(answer: Answer) -> Table:
    """What comes nearest where nothing is feasible, and the cheapest hosted API."""
    shown: dict[tuple[str, str, str], NearMiss] = {}
    for miss in answer.near_misses:
        shown.setdefault(kind(miss), miss)
    found = [
        Row(
            what=short(miss), usd=dollars(miss.usd_per_month), usd_per_mtok=dollars(miss.usd_per_mtok_blended),
            probability=probability(miss), why=missed(miss),
        )
        for miss in shown.values()
    ]  # fmt: skip
    found += [
        Row(
            what=item.accelerator.upper(),
            usd=UNKNOWN,
            usd_per_mtok=UNKNOWN,
            probability=UNKNOWN,
            why=limit_text(item.detail),
        )
        for item in ([] if found else nearest_rejected(answer))
    ]
    api = cheapest_api(answer)
    found = [*found[: MOST_ROWS - 1], *([api_row(api, answer)] if api else [])]
    heads = ("Nearest", "$ a month", "$ per M tokens", "Meets the limits", "What it misses")
    return Table(heads=heads, rows=tuple(found))


def nearest_rejected(answer: Answer) -> list[Rejection]:
    """The rejections that miss their limit by the least, the nearest first."""
    measured = [(ratio, item) for item in answer.rejected if (ratio := miss_ratio(item)) is not None]
    return [item for _, item in sorted(measured, key=lambda pair: pair[0])]


def miss_ratio(item: Rejection) -> float | None:
    """How far a rejected accelerator is from its limit, as a ratio of at least 1."""
    if not item.limit or not item.reached or item.limit < 0 or item.reached < 0:
        return None
    return max(item.limit / item.reached, item.reached / item.limit)


def missed(miss: NearMiss) -> str:
    """What a near miss misses: TTFT p95 1,400 ms, limit 1,000 ms."""
    return limit_text(miss.detail or "; ".join(miss.reasons[:1]))


def limit_text(detail: str) -> str:
    """The first limit that a stored reason names, without the configuration that it was found with."""
    text = detail.partition(" (")[0].removeprefix("closest simulated design: ").removeprefix("best ")
    text = re.sub(r" at [TPED]P\d+.*", "", text)
    month = re.fullmatch(r"(\$[\d,.]+) a month > (\$[\d,.]+)", text)
    if month:
        return f"{month[1]} in its most expensive month, budget {month[2]}"
    return re.sub(r" [<>]=? (?=[\d$])", ", limit ", text)
