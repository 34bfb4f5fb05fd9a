"""What the first screen says beside the sentence on what to do: cost, latency, capacity, evidence, next steps."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.report.asked import allows_apis, spec_of
from advisor.report.screen.machines import Ranked, count_word, named, without_setups
from advisor.result import (
    MUCH_CHEAPER_FRACTION,
    Answer,
    ApiOption,
    Decision,
    Gate,
    HostedOffer,
    Option,
    Owned,
    Settle,
    TrainingOption,
)
from advisor.templatetags.finance import chance
from advisor.templatetags.training import run_time
from advisor.templatetags.units import day, dollars, given, ms, sig
from catalog import clock

BUDGET = "four of five cases"  # the 80th percentile
RANGE_END = "nearly all cases"  # the upper end of a 90% range
MOST_STEPS = 2  # to do before signing
LEAST_DOUBT = 0.05  # chance of another choice from which a test is worth a line
LEAST_ROOM = 1.05  # capacity over the peak that is worth a figure
WIDE = 3.0  # highest over lowest of a 90 % interval from which the first screen names it
FAR = 1.3  # measured over predicted time, or the other way round, from which the first screen names it
BASES = {
    "measured": "speed measured on this chip",
    "relative": "speed estimated from a related chip",
    "datasheet": "speed estimated from the datasheet alone",
}
ORIGINS = {
    "official_list": "the seller's price list",
    "provider_api": "the provider's price API",
    "own": "your own price",
    "reseller": "a reseller",
    "quote": "a quote",
    "marketplace": "a marketplace",
    "second_hand": "a second-hand price",
    "estimate": "an estimate",
    "api": "the provider's published price",
}
AGES = (("day", 1, 10), ("week", 7, 66), ("month", 30.4, 315))  # unit, its days, the most days in this unit
MOST_SURE = 0.999
NEARLY_A_YEAR_DAYS = AGES[-1][2]
SETUP = re.compile(r"\b(TP|DP|PP|EP|CP)\d|\b(FP8|FP4|BF16|INT8|INT4|NVFP4|MXFP4)\b|ZeRO|FSDP|draft token|EAGLE|--\w")


# --- cost -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One line beside the sentence on what to do."""

    label: str
    text: str
    brief: str = ""  # the same with fewer figures, for a screen that is full; empty: the text


def per(option: Ranked | None) -> str:
    """What the amounts are for."""
    if isinstance(option, TrainingOption):
        return "a run" if option.every_days else "for the run"
    return "a month"


def foreseen(probability: float) -> str:
    """A probability of what lies ahead: no number of draws makes it certain."""
    return chance(min(probability, MOST_SURE))


def expected_of(option: Ranked) -> float:
    """Mean cost over the draws, of a run or a month; of answers that have none, the cost as planned."""
    usd = option.usd_per_run if isinstance(option, TrainingOption) else option.usd_per_month
    ranges = option.money.ranges if option.money else None
    mean = ranges.mean_usd_per_month if ranges else None
    return usd if mean is None or not option.usd_per_month else usd * mean / option.usd_per_month


def in_this_unit(decision: Decision, option: Ranked | None, usd_per_month: float) -> float:
    """A monthly amount as one of a run of a training; of other answers as it is."""
    run = option.usd_per_run if isinstance(option, TrainingOption) else None
    return usd_per_month * run / decision.usd_per_month if run and decision.usd_per_month else usd_per_month


def expected_usd(decision: Decision) -> float:
    """Mean monthly cost over the draws; of answers that have none, the cost as planned."""
    expected = decision.expected_usd_per_month
    return decision.usd_per_month if expected is None else expected


def budget_usd(decision: Decision) -> tuple[float, str] | None:
    """(monthly cost, the cases that it is enough for)"""
    if decision.budget_usd_per_month is not None:
        return decision.budget_usd_per_month, BUDGET
    ends = decision.usd_per_month_range
    return (ends[1], RANGE_END) if ends else None


def team_usd(decision: Decision, answer: Answer) -> float | None:
    """The part of the monthly cost that pays the team."""
    if decision.team_usd_per_month is not None:
        return decision.team_usd_per_month
    fleet = answer.portfolio.shared if answer.portfolio else None
    return answer.team.usd_per_month if answer.team else fleet.team_usd_per_month if fleet else None


def cost(decision: Decision, option: Ranked | None, answer: Answer) -> str:
    """The bill and the team, expected and as a budget."""
    unit, team = per(option), team_usd(decision, answer)
    whole = expected_usd(decision)
    amount = [dollars(in_this_unit(decision, option, usd)) for usd in (whole, whole - (team or 0.0), team or 0.0)]
    said = f"Expected {amount[0]} {unit}"
    if team and whole > team:
        said += f": bill {amount[1]}, team {amount[2]}"
    if (enough := budget_usd(decision)) is None:
        return f"{said}."
    budget = dollars(in_this_unit(decision, option, enough[0]))
    return f"{said}. Budget {budget}, enough in {enough[1]}."


def fits(decision: Decision, option: Ranked | None, answer: Answer, is_brief: bool = False) -> str:
    """Whether it is within the stated budget; empty without one."""
    limit, run = limit_usd(answer)
    if limit is None:
        return ""
    expected = in_this_unit(decision, option, expected_usd(decision)) if run else expected_usd(decision)
    enough = budget_usd(decision)
    high = enough[0] if enough else expected
    high = in_this_unit(decision, option, high) if run and enough else high
    if expected > limit:
        return "Above your budget."
    if high <= limit or is_brief:
        return "Within your budget, with room for bad cases." if enough and not is_brief else "Within your budget."
    money = answer.portfolio.money if answer.portfolio else option.money if option else None
    ranges = money.ranges if money else None
    over = ranges.over_budget_probability if ranges else None
    risk = f" with {chance(over)} probability" if over else " in bad cases"
    return f"Within your budget as expected, above it{risk}."


def limit_usd(answer: Answer) -> tuple[float | None, bool]:
    """(the stated budget, whether it is for a run)"""
    spec = spec_of(answer)
    section = spec.get(str(spec.get("kind"))) or {}
    if isinstance(section, Mapping) and section.get("budget_usd"):
        return float(section["budget_usd"]), True
    limit = (spec.get("constraints") or {}).get("max_usd_per_month")
    return (None if limit is None else float(limit)), False


# --- speed and capacity -----------------------------------------------------------------------------------------


def speed(option: Ranked | None, decision: Decision, answer: Answer, is_brief: bool = False) -> str:
    """Latencies beside their limits, or the time of a run beside its deadline, with the probability."""
    if isinstance(option, TrainingOption):
        return training_time(option)
    if isinstance(option, ApiOption):
        return api_speed(option, answer)
    if option is None:
        return ""
    if option.batch:
        return batch_time(option)
    found = list(latencies(option, spec_of(answer).get("slo") or {}))
    said = "; ".join(found)
    said = said[:1].upper() + said[1:]
    limited = any("limit" in each for each in found)
    if limited and option.slo_probability is not None:
        which = "It is" if len(found) == 1 else "Both are" if len(found) == 2 else "All are"
        met = f"met with {foreseen(option.slo_probability)} probability."
        return f"{said}; {met}" if is_brief else f"{said}. {which} {met}"
    return f"{said}{'' if limited else '; you set no limit'}." if said else ""


def latencies(option: Option, slo: Mapping[str, Any]) -> Iterator[str]:
    """First token 520 ms (limit 1,000), p95."""
    e2e = option.latency_ms or option.e2e_ms
    shown = [
        ("first token", None if option.latency_ms else option.ttft_ms.p95, slo.get("ttft_ms_p95")),
        ("each further token", None if option.latency_ms else option.tpot_ms.p95, slo.get("tpot_ms_p95")),
        ("whole answer", e2e.p95 if e2e else None, slo.get("e2e_ms_p95")),
    ]
    limited = [each for each in shown if each[2]]
    for name, reached, limit in limited or (shown[2:] if option.latency_ms else shown[:2]):
        if reached is not None:
            yield f"{name} {ms(reached)}{f' (limit {given(limit)})' if limit else ''}"
    if rate := slo.get("tokens_per_s_per_user"):
        if option.tpot_ms.p95:
            yield f"{sig(1000.0 / option.tpot_ms.p95)} tokens/s per user (limit {given(rate)})"


def training_time(run: TrainingOption) -> str:
    said = f"{run_time(run.days)}{' a run' if run.every_days else ''}, interruptions included"
    if run.deadline_days is None:
        return f"{said}; you set no deadline."
    if run.deadline_probability is None:
        return f"{said}; the deadline is {given(run.deadline_days)} days."
    by = f"the deadline of {given(run.deadline_days)} days is met with"
    return f"{said}; {by} {foreseen(run.deadline_probability)} probability."


def batch_time(option: Option) -> str:
    batch = option.batch
    if batch is None or batch.run_hours is None:
        return ""
    said = f"A run takes {sig(batch.run_hours)} h"
    if batch.deadline_hours:
        said += f" of the {given(batch.deadline_hours)} h allowed"
        if option.slo_probability is not None:
            said += f"; the deadline is met with {foreseen(option.slo_probability)} probability"
    return f"{said}."


def api_speed(option: ApiOption, answer: Answer) -> str:
    rate = option.published_output_tokens_per_s
    published = f"{sig(rate)} tokens/s per user published; " if rate else "no speed is published; "
    verified = "your limits are not verified" if option.meets_slo is None else "you set no limit"
    return f"{published}{verified}.".capitalize()


def capacity(option: Ranked | None, answer: Answer, is_brief: bool = False) -> str:
    """What it carries beyond the peak, and what the loss of one host does."""
    if isinstance(option, ApiOption):
        return "The provider adds capacity and replaces hosts; get its availability in writing."
    if isinstance(option, TrainingOption):
        spares = f", {option.spare_hosts:,} spare host{'s' * (option.spare_hosts > 1)}" if option.spare_hosts else ""
        failures = round(option.goodput.interruptions)
        counted = f"About {count_word(failures)} interruption{'s' * (failures > 1)}"
        return f"{counted if failures else 'Rarely interrupted'}{spares}."
    if option is None or option.batch:
        return ""
    peak = option.simulation.requests_per_s if option.simulation else peak_of(answer)
    ceiling = option.capacity_requests_per_s
    said = carried(ceiling / peak, is_brief) if peak and ceiling else ""
    return " ".join(filter(None, [said, after_a_loss(option, is_brief)]))


def pools(answer: Answer, is_brief: bool = False) -> str:
    """Why prefill and decode are separate or together."""
    found = answer.separate_pools
    if found is None:
        return ""
    if is_brief:
        return "Prefill and decode are separate." if found.chosen else "Prefill and decode stay together."
    return found.said


def step_budget(option: Ranked | None, is_brief: bool = False) -> str:
    """The tokens that a step computes at most, where that is not the framework's default."""
    if not isinstance(option, Option) or option.step_budget is None:
        return ""
    said = f"{option.max_batched_tokens:,} tokens instead of {option.step_budget.default_tokens:,}"
    saved = (option.step_budget.default_accelerator_count or 0) - option.accelerator_count
    return f"{said}, which saves {saved:,} accelerators." if saved > 0 and not is_brief else f"{said}."


def carried(ratio: float, is_brief: bool) -> str:
    if ratio < LEAST_ROOM:
        return "Carries your peak and no more."
    return "Carries more than your peak." if is_brief else f"Carries {sig(ratio, 2)} times your peak."


def peak_of(answer: Answer) -> float | None:
    rate = (spec_of(answer).get("traffic") or {}).get("requests_per_s") or {}
    return rate.get("peak") or rate.get("mean")


def after_a_loss(option: Option, is_brief: bool) -> str:
    lost = option.one_host_lost
    if lost is None:
        return ""
    if lost.limits_hold:
        return "If one host fails, the limits still hold."
    what = "the service stops" if lost.replicas_left == 0 else "the limits are missed"
    spare = (
        f"; a spare costs {dollars(lost.spare_usd_per_month)} a month"
        if lost.spare_usd_per_month and not is_brief
        else ""
    )
    return f"If one host fails, {what} until it is replaced{spare}."


# --- evidence ---------------------------------------------------------------------------------------------------


def rests_on(decision: Decision, option: Ranked | None, is_brief: bool = False) -> str:
    """Age and origin of the price, and what the speed rests on."""
    if decision.provider == "owned":
        price = "Your own machines"
    elif decision.price_as_of:
        origin = ORIGINS.get(decision.price_origin)
        price = f"Price {age_text(decision.price_as_of)}{f', from {origin}' if origin and not is_brief else ''}"
    else:
        price = "No price date"
    if isinstance(option, ApiOption):
        return f"{price}; speed as published, not measured by you."
    known = "; ".join(filter(None, (basis_of(option), unsure_of(option)))) if option else ""
    return f"{price}{f'; {known}' if known else ''}."


def basis_of(option: Option | TrainingOption) -> str:
    """What the speed rests on: imported figures of this very deployment before its chip's kernels."""
    c = option.correction if isinstance(option, Option) else None
    if c is None or not c.imported:
        return BASES.get(option.basis, "")
    slower = c.time_factor >= 1.0
    ratio = c.time_factor if slower else 1.0 / c.time_factor
    plural = "s" if c.rows != 1 else ""
    said = f"speed from {c.rows} imported measurement{plural} of this chip, model and framework"
    return f"{said}, {ratio:.1f} times {'slower' if slower else 'faster'} than predicted" if ratio > FAR else said


def unsure_of(option: Option | TrainingOption) -> str:
    """What a token may take, where the speed is poorly known."""
    span = option.interval.tpot_ms if isinstance(option, Option) else None
    low, high = span or (None, None)
    if not low or not high or high < WIDE * low:
        return ""
    return f"poorly known: each further token takes {sig(low)} to {sig(high)} ms"


def age_text(priced: object) -> str:
    """of today, nine days old, six weeks old, five months old, over two years old"""
    priced_on = day(priced)
    if priced_on is None or (days := (clock.today() - priced_on).days) <= 0:
        return "of today" if priced_on else "of unknown age"
    if days > NEARLY_A_YEAR_DAYS:
        years = days // 365
        return f"over {'a year' if years == 1 else f'{count_word(years)} years'} old" if years else "nearly a year old"
    count, unit = next((round(days / each), name) for name, each, most in AGES if days <= most)
    return f"{count_word(count)} {unit}{'s' * (count > 1)} old"


def own_machines(answer: Answer, decision: Decision, is_brief: bool = False) -> str:
    """What the owned machines would do; empty where nothing is owned or they are what is used."""
    if not answer.owned or "keep" in decision.ways or decision.action == "keep":
        return ""
    own = answer.owned[0]
    if own.suffices is None:
        return ""
    if own.suffices and own.advice == "sell":
        return f"{capital(enough_of(own))}. Selling them costs less only if they bring that price."
    if is_brief:
        return f"{capital(enough_of(own))}." if own.suffices else f"{share_of(own)}."
    if own.suffices:
        kept = next((each for each in answer.recommendations if each.rank == own.rank), None)
        usd = f" for {dollars(expected_of(kept))} a month" if kept else ""
        return f"{capital(enough_of(own))}{usd}, which is not the best choice."
    return f"{share_of(own)}; {own.missing}." if own.missing else f"{share_of(own)}."


def share_of(own: Owned) -> str:
    return f"They carry {own.carried_fraction:.0%} of the load" if own.carried_fraction else "They are not enough"


def enough_of(own: Owned) -> str:
    """one of your two servers is enough"""
    if not own.hosts or not own.hosts_used:
        return "your machines are enough"
    if own.hosts_used >= own.hosts:
        return f"your {count_word(own.hosts)} server{'s are' if own.hosts > 1 else ' is'} enough"
    verb = "is" if own.hosts_used == 1 else "are"
    return f"{count_word(own.hosts_used)} of your {count_word(own.hosts)} servers {verb} enough"


def is_sold(answer: Answer, decision: Decision) -> Owned | None:
    """The machines that suffice and that the first choice sells all the same."""
    own = answer.owned[0] if answer.owned else None
    kept = "keep" in decision.ways or decision.action == "keep" or decision.provider == "owned"
    return own if own and own.suffices and own.advice == "sell" and not kept else None


# --- before signing ---------------------------------------------------------------------------------------------


def before_signing(decision: Decision, option: Ranked | None, answer: Answer) -> list[Fact]:
    """At most two things: the test or quote that can change the choice, and what makes the price sound."""
    found = [test_text(decision, answer)]
    if isinstance(option, ApiOption):
        found.append(("Measure its latency with your own prompts: nobody publishes p95 latencies.", ""))
    elif decision.price_weakness and found[0][0].startswith("Get a written quote"):
        reason = f"; the price is {weakness(decision.price_weakness)}: "
        found = [(found[0][0].replace(": ", reason, 1), found[0][1].replace(": ", reason, 1))]
    elif decision.price_weakness:
        found.append(price_text(decision))
    elif "buy" in decision.ways:
        found.append(("Get a written quote with the delivery date.", ""))
    if len([text for text, _ in found if text]) < MOST_STEPS:
        found.append(api_test(decision, option, answer))
    steps = {text: brief for text, brief in found if text}
    return [Fact(label="Before signing", text=text, brief=brief) for text, brief in steps.items()][:MOST_STEPS]


def cheapest_api(answer: Answer) -> HostedOffer | None:
    priced = [offer for offer in answer.hosted if offer.usd_per_month]
    return min(priced, key=lambda offer: offer.usd_per_month, default=None)


def api_test(decision: Decision, option: Ranked | None, answer: Answer) -> tuple[str, str]:
    """A hosted API that costs far less and only lacks a published latency; empty where there is none."""
    api = cheapest_api(answer)
    if api is None or isinstance(option, ApiOption) or decision.action == "keep" or not allows_apis(answer):
        return "", ""
    open_question = api.slo_state in ("not verified", "disputed") and api.within_budget
    excluded = api.rejection is not None and api.rejection.reason == "excluded"
    if not open_question or excluded or api.usd_per_month > MUCH_CHEAPER_FRACTION * expected_usd(decision):
        return "", ""
    seller, usd = api.provider_name or api.provider, dollars(api.usd_per_month)
    said = f"Measure the latency of {seller}'s hosted API: at {usd} a month, it is the choice if it meets your limits."
    return said, f"Measure the latency of {seller}'s hosted API, which costs far less."


def price_text(decision: Decision) -> tuple[str, str]:
    """What makes a weak price sound, and the same with its first weakness alone: nobody quotes a rent by the hour."""
    seller = "a supplier" if decision.provider in ("own", "owned", "") else decision.provider
    by_the_hour = decision.ways == ["rent"]
    action = f"Check today's price at {seller}" if by_the_hour else f"Get a written quote from {seller}"
    why = weakness(decision.price_weakness)
    return f"{action}: the price used is {why}.", f"{action}: the price used is {why.partition(' and ')[0]}."


def weakness(text: str) -> str:
    """an estimate, of low confidence; the age stands elsewhere"""
    parts = [part for part in text.split(", ") if not part[:1].isdigit()]
    return " and ".join(parts) or "old"


def test_text(decision: Decision, answer: Answer) -> tuple[str, str]:
    """The test or quote that can change the choice, with its cost and worth; the same with fewer figures."""
    gate, settle = decision.gate, decision.settle
    amounts = worth_of(gate) if gate else ""
    if gate and decision.action == "do_not_sign" and gate.kind == "api":
        return "", ""  # `api_test` has the words
    if gate and decision.action == "do_not_sign" and gate.kind == "budget":
        return f"Raise the budget to {dollars(expected_usd(decision))} a month, or relax a limit.", ""
    if gate and decision.action == "do_not_sign":
        return f"Load-test one replica at its share of your peak{f' ({amounts})' if amounts else ''}.", ""
    if settle is None or settle.kind == "none" or settle.flips_fraction < LEAST_DOUBT:
        return "", ""
    other = answer.option(settle.winner_after_rank) if settle.winner_after_rank else None
    if other is not None and answer.recommendations and named(other) == named(answer.recommendations[0]):
        return "", ""  # the same machines, set up in another way
    tested = tested_option(settle, answer)
    action = plain(without_setups(settle.said.partition(". ")[0], answer)).rstrip(".")
    if action.startswith("Time some training steps"):
        action = "Time some training steps first"
    elif tested is not None:
        action = f"Load-test {'the first choice' if tested.rank == 1 else named(tested)}"
    doubt = f"{action}: it may change the choice"
    brief = f"{doubt} ({chance(settle.flips_fraction)} probability)."
    turning_ms = settle.measurement.turning_tpot_ms if settle.measurement else None
    if tested is None or other is None or turning_ms is None or settle.kind != "measurement":
        said = ", ".join([f"{chance(settle.flips_fraction)} probability", *([amounts] if amounts else [])])
        return f"{doubt} ({said}).", brief
    value, end = f"{sig(turning_ms)} ms on average", f" ({amounts})." if amounts else "."
    if tested.rank == 1:
        return f"{action}: if a token takes over {value}, take {named(other)}{end}", brief
    return f"{action}: if a token takes under {value}, take it{end}", brief


def worth_of(gate: Gate) -> str:
    """What the test costs and what it is worth: costs $60, worth $1,100 a month"""
    said = [f"costs {dollars(gate.test_usd)}"] if gate.test_usd is not None else []
    said += [f"worth {dollars(gate.worth_usd_per_month)} a month"] if gate.worth_usd_per_month else []
    return ", ".join(said)


def tested_option(settle: Settle, answer: Answer) -> Ranked | None:
    """The option that a measurement is about; None: it is a quote, or about no single option."""
    if settle.kind != "measurement":
        return None
    about = settle.input.partition(" of ")[2]
    machines = [each for each in answer.recommendations if about and each.label.startswith(about)]
    return machines[0] if machines else answer.option(settle.measurement.rank) if settle.measurement else None


def plain(text: str) -> str:
    """A sentence without the configuration that follows a machine."""
    parts = [part for part in text.split(", ") if not SETUP.search(part)]
    return ", ".join(parts) if parts else text


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
