"""Machines in plain words: whole ones, as they are sold, and when a plan needs them."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.result import AloneOption, Answer, ApiOption, Option, PlanStep, TrainingOption, lasting
from advisor.templatetags.units import dollars

Ranked = Option | ApiOption | TrainingOption
IN_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NOUNS = ("workstation", "slice", "rack")  # in names of instances; all others are servers
SHORT_NAMES = ("ada", "arc", "dual", "groq", "max", "nano", "orin", "thor", "xeon")
LONGEST_ACRONYM = 4  # letters of a name in capitals (RTX); longer ones are words (Gaudi)
TWO_SIZES = ("A100", "V100", "GH200")  # families sold with two memory sizes: the name states which
WAYS = {
    "on_demand": "by the hour",
    "spot": "spot",
    "reserved_1y": "one-year term",
    "reserved_3y": "three-year term",
    "capacity_block": "booked ahead",
    "purchase": "bought",
    "owned": "already yours",
}
TERMS = {"reserved_1y": "one year", "reserved_3y": "three years"}
LATER = {"reserve": "rent"}  # verbs of the parts of a plan that are not named
SHARED = "one shared fleet"  # PortfolioMoney.of
MOST_PARTS = 2  # of a plan that the sentence names


def chip_name(name: str) -> str:
    """The accelerator as people say it: H100 SXM, A100-80GB PCIe, MI300X."""
    name = re.sub(r"\s*\([^)]*\)", "", name).removeprefix("Instinct ").removeprefix("GeForce ")
    name = re.sub(r"SXM\d(/SXM\d)?", "SXM", name)
    found = re.search(r"\s(\d+)GB\b", name)
    if found is None:
        return name
    bare = name[: found.start()] + name[found.end() :]
    family = bare.split()[0]
    return bare.replace(family, f"{family}-{found[1]}GB", 1) if family in TWO_SIZES else bare


def chip_text(slug: str) -> str:
    """A chip's catalog name as people write it: H200 SXM, Trainium2, TPU v6e, Apple M3 Ultra."""
    return " ".join(_chip_word(word) for word in slug.split("-"))


def _chip_word(word: str) -> str:
    if re.fullmatch(r"v\d[a-z]?|\d+gb", word):
        return word.replace("gb", " GB")
    letters = re.split("[^a-z]", word, maxsplit=1)[0]
    is_name = letters in SHORT_NAMES or len(letters) > LONGEST_ACRONYM
    return word.capitalize() if is_name else word.upper().replace("PCIE", "PCIe")


def list_of(names: Sequence[str]) -> str:
    """A, B and C"""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def count_word(number: int) -> str:
    return IN_WORDS[number] if 0 <= number < len(IN_WORDS) else f"{number:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """Machines of one kind."""

    count: int
    size: int  # accelerators in each
    chip: str
    noun: str

    @property
    def accelerators(self) -> int:
        return self.count * self.size

    def counted(self, count: int | None = None) -> str:
        """two servers of 8 × H100 SXM; 6 × MI300X where single accelerators are sold."""
        number = self.count if count is None else count
        if self.size == 1:
            return f"{number:,} × {self.chip}"
        return f"{count_word(number)} {self.noun}{'' if number == 1 else 's'} of {self.size} × {self.chip}"


def machines_of(option: Option | TrainingOption) -> Machines:
    """The machines of an option on its first day, whole ones, as the plan has them."""
    steps = [s for s in steps_of(option) if s.instance == option.instance and s.accelerators]
    bought = [s for s in steps if s.action != "rent"]
    count = max(option.instances, in_service(bought, bought[0].from_month) if bought else 0, 1)
    size = steps[0].accelerators if steps else max(1, -(-option.accelerator_count // max(option.instances, 1)))
    return Machines(count=count, size=size, chip=chip_name(option.accelerator_name), noun=noun_of(option.instance))


def noun_of(instance: str) -> str:
    return next((noun for noun in NOUNS if noun in instance.lower()), "server")


def steps_of(option: Ranked) -> Sequence[PlanStep]:
    """What is signed to last, in the order of its first month; empty in answers of earlier versions."""
    plan = option.money.plan if option.money else None
    return sorted(lasting(plan.steps, plan.bridge), key=lambda s: s.from_month) if plan else []


def short(option: Ranked) -> str:
    """An option in a table or a list: 16 × H100 SXM, rented by the hour, nebius."""
    if isinstance(option, ApiOption):
        return f"Hosted API of {option.provider_name or option.provider}"
    found = machines_of(option)
    way = WAYS.get(option.term, option.term.replace("_", " "))
    seller = "" if option.provider in ("own", "owned", "") else f", {option.provider}"
    return f"{found.accelerators:,} × {found.chip}, {way}{seller}"


def named(option: Ranked) -> str:
    """An option in a sentence: 16 × H100 SXM."""
    if isinstance(option, ApiOption):
        return f"the API of {option.provider_name or option.provider}"
    found = machines_of(option)
    return f"{found.accelerators:,} × {found.chip}"


def without_setups(text: str, answer: Answer) -> str:
    """A sentence of the answer with machines in place of whole configurations."""
    for option in sorted(answer.recommendations, key=lambda each: -len(each.label)):
        text = text.replace(option.label, short(option))
        if not isinstance(option, ApiOption):
            text = text.replace(f"{option.accelerator_count:,} x {option.accelerator_name}", named(option))
            text = text.replace(f" x {option.accelerator_name}", f" × {chip_name(option.accelerator_name)}")
    return text


# --- what to do -------------------------------------------------------------------------------------------------


def signed(option: Ranked, most_parts: int = MOST_PARTS) -> str:
    """What is signed, as the rest of a sentence: rent two servers of 8 × H100 SXM at nebius by the hour."""
    if isinstance(option, ApiOption):
        return f"pay {option.provider_name or option.provider} per token for its hosted API"
    groups: dict[tuple[str, str, str, str], list[PlanStep]] = {}
    for step in steps_of(option):
        groups.setdefault((step.action, step.instance, step.provider, step.term), []).append(step)
    if not groups:
        return without_plan(option)
    end = max(step.until_month for steps in groups.values() for step in steps)
    parts = [part(option, steps, end, is_first=not n) for n, steps in enumerate(groups.values())]
    parts[0] += bridge_text(option)  # until the first machines arrive
    return "; ".join(most_expensive(parts, list(groups.values()), most_parts))


def most_expensive(parts: Sequence[str], groups: Sequence[Sequence[PlanStep]], most: int) -> Iterator[str]:
    """The parts of a plan that cost most, in their order, and in a few words that there are others."""
    by_cost = sorted(range(len(parts)), key=lambda n: -sum(step.usd for step in groups[n]))
    shown = sorted(by_cost[:most])
    yield from (parts[n] for n in shown)
    left = [(n, groups[n]) for n in range(len(parts)) if n not in shown]
    if before := verbs([steps for n, steps in left if n < shown[0]]):
        yield f"{list_of(before)} until then"
    if after := verbs([steps for n, steps in left if n > shown[0]]):
        yield f"{list_of(after)} more later"


def verbs(groups: Sequence[Sequence[PlanStep]]) -> list[str]:
    """rent, buy"""
    return list(dict.fromkeys(LATER.get(steps[0].action, steps[0].action) for steps in groups))


def without_plan(option: Option | TrainingOption) -> str:
    what = machines_of(option).counted() + in_use(option)
    if option.provider == "owned":
        return f"keep {what}"
    if option.acquisition == "own":
        return f"buy {what}"
    return f"rent {what} at {option.provider} {how_long(option.term)}"


def in_use(option: Option | TrainingOption) -> str:
    """How many accelerators are used where whole machines have more."""
    found = machines_of(option)
    return f" ({option.accelerator_count:,} in use)" if option.accelerator_count < found.accelerators else ""


def how_long(term: str) -> str:
    return f"for {TERMS[term]}" if term in TERMS else "as spot instances" if term == "spot" else "by the hour"


def part(option: Option | TrainingOption, steps: Sequence[PlanStep], end: int, is_first: bool) -> str:
    """One kind of machines of a plan under one contract: how many, when, for how much. `end`: its last month."""
    step = steps[0]
    same = step.instance == option.instance
    if same and step.action == "rent" and (by_month := hourly(option)):
        first, most = by_month[0], max(by_month)
        month = 1 + by_month.index(most)
    else:
        first = in_service(steps, step.from_month)
        most, month = most_in_service(steps)
    known = same or step.accelerators  # steps of earlier versions do not say how many an instance has
    chip = chip_name(option.accelerator_name) if known else step.instance
    found = Machines(count=first, size=step.accelerators if known else 1, chip=chip, noun=noun_of(step.instance))
    found = found if found.size else machines_of(option)
    wait = max(each.order_months_before for each in steps)
    at_once = step.from_month <= 1 + math.ceil(wait)  # ordered in the first month
    when = "" if at_once else f" from month {step.from_month}"
    used = in_use(option) if is_first and same and first == option.instances else ""
    if step.action == "keep":
        return f"keep {found.counted(first)}{used}{when}"
    if step.action == "buy":
        facts = [dollars(step.unit_usd_once * first)] if step.unit_usd_once else []
        facts += [f"delivery takes {wait_text(wait)}"] if wait else []
        now = " now" if at_once and (is_first or wait) else when
        said = f"buy {found.counted(first)}{used}{now}" + (f" ({', '.join(facts)})" if facts else "")
    else:
        due = f" ({dollars(step.usd)} committed)" if step.action == "reserve" else ""
        last = max(each.until_month for each in steps)
        stops = f" until month {last}" if step.action == "rent" and last < end else ""
        said = f"rent {found.counted(first)}{used} at {step.provider} {how_long(step.term)}{when}{stops}{due}"
    return said + more_text(first, most, month)


def wait_text(months: float) -> str:
    """ten months, one week"""
    if months < 1:
        weeks = max(1, round(months * 30.4 / 7))
        return f"{count_word(weeks)} week{'s' * (weeks > 1)}"
    return f"{count_word(round(months))} month{'s' * (round(months) > 1)}"


def hourly(option: Option | TrainingOption) -> list[int]:
    """Machines rented by the hour in each month; empty where all months are the same."""
    plan = option.money.plan if option.money else None
    found = [month.hourly_instances for month in plan.months] if plan else []
    return found if found and found[0] else []


def in_service(steps: Sequence[PlanStep], month: int) -> int:
    return sum(step.instances for step in steps if step.from_month <= month <= step.until_month)


def most_in_service(steps: Sequence[PlanStep]) -> tuple[int, int]:
    """(machines, first month with so many)"""
    counts = [(in_service(steps, month), -month) for month in {step.from_month for step in steps}]
    most, month = max(counts)
    return most, -month


def more_text(first: int, most: int, month: int) -> str:
    """What is added later."""
    if most <= first:
        return ""
    if (more := most - first) == 1:
        return f", {'a second' if first == 1 else 'one more'} in month {month}"
    return f", {count_word(more)} more by month {month}"


def bridge_text(option: Ranked) -> str:
    """What is rented until bought servers arrive."""
    bridge = option.money.plan.bridge if option.money and option.money.plan else None
    if bridge is None:
        return ""
    return (
        f" and rent {bridge.accelerators:,} × {chip_name(bridge.accelerator_name or bridge.accelerator)} until delivery"
    )


def separate(answer: Answer) -> bool:
    """Whether each workload of a portfolio is billed on machines of its own."""
    p = answer.portfolio
    return bool(p and p.money and p.money.of != SHARED and p.alone and all(each.option for each in p.alone))


def on(option: AloneOption) -> str:
    """4 × L40S, by the hour, nebius"""
    seller = "" if option.provider in ("own", "owned", "") else f", {option.provider}"
    way = WAYS.get(option.term, option.term.replace("_", " "))
    return f"{option.accelerator_count:,} × {chip_text(option.accelerator)}, {way}{seller}"


def of_fleet(answer: Answer) -> str:
    """What a portfolio signs."""
    if answer.portfolio and separate(answer):
        each = [f"{one.name} on {on(one.option)}" for one in answer.portfolio.alone if one.option]
        return "; ".join(each[:MOST_PARTS]) + ("; the others as below" if len(each) > MOST_PARTS else "")
    money = answer.portfolio.money if answer.portfolio else None
    counts: dict[tuple[str, str, str], float] = {}
    for item in (
        sorted(money.items, key=lambda i: -(i.unit_usd_per_month or 0.0) * (i.quantity or 0.0)) if money else []
    ):
        if item.quantity:
            name = re.sub(r"\s*\([^)]*\)", "", item.item).replace(" x ", " × ")
            key = (item.action or "rent", name, item.provider if item.action not in ("buy", "keep") else "")
            counts[key] = counts.get(key, 0.0) + item.quantity
    parts = [
        f"{action} {count:,.3g} × {name}{f' at {seller}' if seller else ''}"
        for (action, name, seller), count in counts.items()
    ]
    said = "; ".join(parts[:MOST_PARTS])
    more = len(parts) - MOST_PARTS
    return said + (f"; {count_word(more)} more kind{'s' * (more > 1)} of machine" if more > 0 else "")
