"""An answer as its first screen: plain facts and finished sentences."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.terms import kind_named
from advisor.report.asked import spec_of
from advisor.report.screen import facts, rows
from advisor.report.screen.facts import Fact, capital
from advisor.report.screen.machines import Ranked, chip_text, count_word, named, of_fleet, signed
from advisor.report.screen.question import question_of, title_of
from advisor.result import Answer, Decision, Gate, NearMiss, Option, Rejection, Unranked
from advisor.templatetags.changes import limits_to_raise
from advisor.templatetags.units import dollars, given

MOST_LINES = 25  # in a terminal
MOST_FIGURES = 45  # on the screen; a figure is a word with a digit
CHART_FIGURES = 4  # of the chart beside the sentences: the total of each way to pay
SIZES = ((2, 4), (2, 3), (1, 4), (1, 3), (1, 2))  # parts of the plan that the sentence names, rows of the table
NEVER_LEFT_OUT = ("Cost", "Speed", "Your budget", "Rests on")  # while anything else can be
LEFT_OUT_FIRST = ("Pools", "Step budget")  # what is to be done before signing matters more
LEAST_FACTS = 4  # that are shown however long they are
MOST_IN_BLOCK, MOST_WORDS = 20, 120  # in the sentences above the table
MOST_TERMS = 2
REASONS = {
    "unpriced": "without a usable price",
    "misses_slo": "too slow",
    "misses_deadline": "too slow for the deadline",
    "outranked": "outranked",
    "unsupported": "not supported",
    "does_not_fit": "too small",
    "too_much_power": "drawing too much power",
    "too_expensive": "over budget",
    "too_many": "needing more chips than allowed",
    "excluded": "excluded by your constraints",
    "cooling": "needing different cooling",
    "internal_error": "not evaluated because of an internal error",
    "not_examined": "not examined",
}
SOLD_AS = {  # term of an offer: how its seller sells it
    "capacity_block": "only in capacity blocks, booked ahead",
    "spot": "only as spot capacity, which it can take back",
    "purchase": "only to buy",
}
FIXED = {"constraints.layout", "constraints.max_batched_tokens"}  # how a server must be started
MOST_REASONS = 2  # that an infeasible answer counts
LIMIT = ", limit "  # in a reason that names a figure with its limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """What a page, a terminal and Markdown show first."""

    title: str
    question: str
    feasible: bool
    todo: str  # one sentence
    facts: tuple[Fact, ...]  # what is to be done before signing last
    table: rows.Table
    below: tuple[str, ...]  # lines below the table


def screen_of(answer: Answer) -> Screen:
    decision = answer.decision or answer.decide()
    if decision is None:
        return nothing(answer)
    option = answer.recommendations[0] if answer.recommendations else None
    title, question, lines = title_of(answer), question_of(answer), tuple(below(decision))
    found = [
        Fact(label="Cost", text=facts.cost(decision, option, answer)),
        Fact(label="Your budget", **both(facts.fits, decision, option, answer)),
        Fact(label="Speed (p95)" if has_latencies(answer) else "Speed", **both(facts.speed, option, decision, answer)),
        Fact(label="Capacity", **both(facts.capacity, option, answer)),
        Fact(label="Pools", **both(facts.pools, answer)),
        Fact(label="Step budget", **both(facts.step_budget, option)),
        Fact(label="Your machines", **both(facts.own_machines, answer, decision)),
        Fact(label="Rests on", **both(facts.rests_on, decision, option)),
        *facts.before_signing(decision, option, answer),
    ]
    beside = figures(" ".join([title, question, *lines])) + CHART_FIGURES * has_chart(option)
    said, table, shown = fitting(answer, decision, [fact for fact in found if fact.text], beside)
    return Screen(title=title, question=question, feasible=True, todo=said, facts=shown, table=table, below=lines)


def has_chart(option: Ranked | None) -> bool:
    """Whether there are several ways to pay to draw over time."""
    return isinstance(option, Option) and option.money is not None and len(option.money.paths) > 1


def fitting(
    answer: Answer, decision: Decision, found: list[Fact], beside: int
) -> tuple[str, rows.Table, tuple[Fact, ...]]:
    """The longest sentence and table with which every fact has room; with none, the last facts are left out."""
    tried = []
    for parts, most_rows in SIZES:
        said, table = todo(answer, decision, parts), rows.table_of(answer, decision, most_rows)
        most = min(MOST_IN_BLOCK, MOST_FIGURES - beside - figures(" ".join(table.words())))
        tried.append((said, table, shortened(found, said, most)))
        if len(tried[-1][2]) == len(found):
            break
    return max(tried, key=lambda each: len(each[2]))


def figures(text: str) -> int:
    """How many words of a text have a digit."""
    return sum(any(character.isdigit() for character in word) for word in text.split())


def both(says: Callable[..., str], *about: Any) -> dict[str, str]:
    """A fact as it is, and in brief."""
    return {"text": says(*about), "brief": says(*about, is_brief=True)}


def shortened(given: list[Fact], said: str, most: int) -> tuple[Fact, ...]:
    """The facts, the last ones in brief or left out, so that the sentences have at most so many figures and words."""
    found = list(given)

    def excess() -> tuple[bool, bool]:
        text = " ".join([said, *(f"{fact.label} {fact.text}" for fact in found)])
        return figures(text) > most, len(text.split()) > MOST_WORDS

    for n in reversed(range(len(found))):
        if not any(excess()):
            break
        found[n] = replace(found[n], text=found[n].brief or found[n].text)
    while any(excess()) and len(found) > LEAST_FACTS:
        too_many, _ = excess()
        able = [n for n, fact in enumerate(found) if figures(fact.text) or not too_many]
        found.pop(max(able, key=lambda n: (*left_out_early(found[n].label), n)))
    return tuple(found)


def left_out_early(label: str) -> tuple[bool, bool]:
    """Sorts last what is left out before all else."""
    return label in LEFT_OUT_FIRST, not label.startswith(NEVER_LEFT_OUT)


def has_latencies(answer: Answer) -> bool:
    return bool(answer.deployments) and answer.recommendations[0] is answer.deployments[0] and not is_batch(answer)


def is_batch(answer: Answer) -> bool:
    return any(option.batch for option in answer.deployments[:1])


# --- what to do -------------------------------------------------------------------------------------------------


def todo(answer: Answer, decision: Decision, most_parts: int) -> str:
    """What to do, in one sentence that names so many parts of the plan."""
    if answer.portfolio:
        return f"{capital(of_sharing(answer))}: {of_fleet(answer)}."
    what = signed(answer.recommendations[0], most_parts)
    match decision.action:
        case "keep":
            return f"Keep: {kept(answer, what)}."
        case "do_not_sign":
            return f"Do not sign yet: {gated(decision.gate, what)}."
        case "get_quote":
            return f"Get a quote: the best choice, {what}, has no price that you can sign today."
        case "no_clear_winner":
            return f"No clear winner: {tied(answer, decision, what)}."
    return f"{capital(sold(answer, decision) + what)}."


def kept(answer: Answer, what: str) -> str:
    """one of your two servers is enough"""
    own = next((o for o in answer.owned if o.suffices and o.hosts), None)
    return facts.enough_of(own) if own and own.hosts_used else what.removeprefix("keep ")


def sold(answer: Answer, decision: Decision) -> str:
    """sell your two servers (about $320,625) and, in front of what is signed in their place; else empty"""
    own = facts.is_sold(answer, decision)
    if own is None:
        return ""
    what = f"your {count_word(own.hosts)} server{'s' * (own.hosts > 1)}" if own.hosts else "your machines"
    return f"sell {what}{f' (about {dollars(own.resale_usd)})' if own.resale_usd else ''} and "


def gated(gate: Gate | None, what: str) -> str:
    """What can be signed once the test is passed."""
    if gate is None or gate.value is None:
        return f"no option is sure enough; the best so far is to {what}"
    if gate.kind == "api":
        seller = gate.better_than_value.partition(" API")[0]
        return f"measure the hosted API of {seller} first; {what} only if it misses your limits"
    if gate.kind == "budget":
        return f"to {what} is expected to cost more than your budget"
    return f"{what} only if {gate.metric} stays within {given(gate.value)} {gate.unit}"


def tied(answer: Answer, decision: Decision, what: str) -> str:
    """three choices cost about the same; we would rent A. The table names the others"""
    first = answer.recommendations[0]
    others = [o for o in rows.distinct(answer.recommendations) if o.rank in decision.tied_ranks and o is not first]
    said = f"{count_word(len(others) + 1)} choices cost about the same; " if others else ""
    return f"{said}we would {what}"


def of_sharing(answer: Answer) -> str:
    """What a portfolio comes to."""
    p = answer.portfolio
    if p is None or p.shared is None or (p.saving_fraction or 0.0) <= 0:
        return "run the workloads separately"
    return f"share one fleet, {p.saving_fraction:.0%} cheaper than separate machines"


def below(decision: Decision) -> Iterator[str]:
    """Terms beside the first choice."""
    for term in decision.terms[:MOST_TERMS]:
        name = {"reserved_1y": "One-year term", "reserved_3y": "Three-year term"}.get(term.term, term.term)
        yield f"{name} at {term.provider}: saves {term.saves_fraction:.0%}, liability {dollars(term.liability_usd)}."


# --- nothing feasible -------------------------------------------------------------------------------------------


def nothing(answer: Answer) -> Screen:
    """What is in the way, and the smallest change that lets something pass."""
    near = nearest(answer)
    quoted = answer.unranked[0] if near is None and answer.unranked else None
    least = smallest_change(near or fixed_wrong(answer), is_training(answer))
    change = price_needed(answer, quoted) if quoted else least
    found = [Fact(label="In the way", text=in_the_way(answer)), Fact(label="Smallest change", text=change)]
    return Screen(
        title=title_of(answer),
        question=question_of(answer),
        feasible=False,
        todo=unpriced_meets(quoted) if quoted else nothing_meets(answer, near),
        facts=tuple(fact for fact in found if fact.text),
        table=rows.near_misses(answer),
        below=(),
    )


def is_training(answer: Answer) -> bool:
    return kind_named(spec_of(answer).get("kind")).trains


def nearest(answer: Answer) -> NearMiss | Rejection | None:
    """The first near miss, or the rejection that misses its limit by the least."""
    misses: list[NearMiss | Rejection] = [*answer.near_misses, *rows.nearest_rejected(answer)]
    return next(iter(misses), None)


def fixed_wrong(answer: Answer) -> Rejection | None:
    """An accelerator that only how its server must be started rules out, or the one reason for all that are allowed."""
    allowed = [r for r in answer.rejected if r.reason != "excluded"]
    fixed = next((r for r in allowed if set(r.change or {}) & FIXED and r.reason == "unsupported"), None)
    return fixed or (allowed[0] if len({r.detail for r in allowed}) == 1 else None)


def nothing_meets(answer: Answer, near: NearMiss | Rejection | None) -> str:
    if answer.portfolio is not None:
        without = [each.name for each in answer.portfolio.alone if each.option is None]
        return f"Nothing meets this: no machines serve {' and '.join(without) or 'all workloads together'}."
    if near is None:
        wrong = fixed_wrong(answer)
        why = wrong.detail if wrong else "every accelerator was ruled out before a deployment was computed"
        return f"Nothing meets this: {why}."
    name = named(near) if isinstance(near, NearMiss) else chip_text(near.accelerator)
    text = rows.missed(near) if isinstance(near, NearMiss) else rows.limit_text(near.detail)
    said = f"the nearest, {name}, reaches {text}" if LIMIT in text else f"the nearest is {name}; {text}"
    return f"Nothing meets this: {said.rstrip('.')}."


def unpriced_meets(item: Unranked) -> str:
    """What meets the limits although nothing with a usable price does."""
    if item.offer is None:
        return f"Get a quote for {item.label}: it meets every limit in simulation, but no seller publishes a price."
    sold = f"{item.offer.provider} sells it {SOLD_AS.get(item.offer.term, 'on terms that you exclude')}"
    meets = f"{item.label} meets every limit for {dollars(item.offer.usd_per_month)} a month"
    return f"Nothing is sold on your terms: {meets}, but {sold}."


def price_needed(answer: Answer, item: Unranked) -> str:
    """What admits the offer of an accelerator without a usable price, or what to do with a quote."""
    changes = [one.change for one in answer.bookable if one.label == item.label]
    if item.offer is None or not changes:
        return f"Enter the quoted price of {chip_text(item.accelerator)} as your own price and ask again."
    allowed = "; ".join(f"{key}: [{', '.join(map(str, value))}]" for key, value in changes[0].items())
    return f"Allow it with {allowed}." + (f" {capital(item.offer.booking)}." if item.offer.booking else "")


def in_the_way(answer: Answer) -> str:
    """How many accelerators fail for which reason, the most frequent first."""
    counts = rejected_counts(answer.rejected)
    if not counts:
        return ""
    parts = [f"{count:,} accelerator{'s' * (count > 1)} {reason}" for reason, count in counts[:MOST_REASONS]]
    return f"{', '.join(parts)}."


def rejected_counts(rejected: list[Rejection]) -> list[tuple[str, int]]:
    """(reason, count), the most frequent first; the reason fits behind a number."""
    counts = Counter(item.reason for item in rejected)
    return [(REASONS.get(reason, reason.replace("_", " ")), count) for reason, count in counts.most_common()]


def smallest_change(near: NearMiss | Rejection | None, trains: bool) -> str:
    """The smallest change with which the nearest qualifies; where none is known, what to relax."""
    if near is not None and near.smallest_change:
        return f"{capital(limits_to_raise(near.smallest_change)).replace('Qualifies', 'It qualifies', 1)}."
    if trains:
        return "Allow more days or accelerators, train on fewer tokens, raise the budget or remove exclusions."
    return "Relax the limits, raise the budget or remove exclusions."
