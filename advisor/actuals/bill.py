"""A bill in FOCUS (FinOps Open Cost and Usage Specification 1.0 to 1.2), summed by month.

Sums are exact decimals, whatever the order of rows. Only `cents` rounds, so that parts add up to the rounded total.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

from advisor.actuals.files import ActualsError, Row, amount_in, named, plain, rows_of, text_in, time_in

COLUMNS = {
    plain(name): name
    for name in ("BilledCost", "EffectiveCost", "ChargeCategory", "ChargePeriodStart", "BillingCurrency")
}
# What each further column is needed for; a bill without it is read, and this is said.
FURTHER = {
    "ChargePeriodEnd": "the hours that a bill covers",
    "ConsumedQuantity": "accelerator hours",
    "ConsumedUnit": "accelerator hours",
    "CommitmentDiscountStatus": "coverage and use of commitments",
    "Tags": "cost by tag",
}
USED = {
    *COLUMNS, *map(plain, FURTHER),
    *("capacityreservationstatus", "commitmentdiscountquantity", "commitmentdiscountunit", "contractedcost"),
    *("listcost", "pricingquantity", "pricingunit", "skupricedetails", "xskudetails", "xinstancetype", "resourcetype"),
    *("skumeter", "xusagetype", "chargedescription"),
}  # fmt: skip
CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
UNTAGGED = "(without this tag)"
MANY = 10_000  # values of a tag
LONG = 1_000  # characters of one
HOUR_UNITS = re.compile(r"\b(hours?|hrs?)\b", re.IGNORECASE)
CHIP_UNITS = re.compile(r"gpu|accelerator|\bchips?\b|\btpu", re.IGNORECASE)
WORDS = re.compile(r"[\w.+-]+")
ZERO = Decimal(0)


def cents(value: Decimal) -> Decimal:
    with localcontext(prec=60):
        return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


def in_cents(parts: Mapping[str, Decimal]) -> dict[str, float]:
    """Each part rounded so that all add up to the rounded sum: the largest remainders are rounded up."""
    with localcontext(prec=60):
        lower = {name: (value * 100).to_integral_value("ROUND_FLOOR") for name, value in parts.items()}
        missing = int(cents(sum(parts.values(), ZERO)) * 100 - sum(lower.values(), ZERO))
        for name in sorted(parts, key=lambda n: (lower[n] - parts[n] * 100, n))[:missing]:
            lower[name] += 1
        return {name: float(value / 100) for name, value in lower.items()}


@dataclass(slots=True)
class Month:
    """The rows of one month, by the start of their charge period, in UTC."""

    starts_at: datetime
    ends_at: datetime  # of its charges, at most the month's end
    rows: int = 0
    billed: dict[str, Decimal] = field(default_factory=dict)  # by category
    effective: dict[str, Decimal] = field(default_factory=dict)
    by_tag: dict[str, tuple[Decimal, Decimal]] = field(default_factory=dict)  # billed, effective
    covered: Decimal = ZERO  # contracted cost of usage that a commitment pays
    eligible: Decimal = ZERO  # contracted cost of all usage; 0 without the column CommitmentDiscountStatus
    commitment_used: Decimal = ZERO  # effective cost
    commitment_unused: Decimal = ZERO
    hours_used: Decimal = ZERO  # of accelerators
    hours_unused: Decimal = ZERO  # paid by commitments or reservations, and not used

    @property
    def covered_hours(self) -> float:
        """Hours from the first charge to the last."""
        return (self.ends_at - self.starts_at).total_seconds() / 3600


@dataclass(frozen=True, slots=True)
class Bill:
    currency: str
    months: dict[str, Month]  # by YYYY-MM, in order
    notes: list[str]
    rows: int  # of the file
    left_out: int  # that are of another currency, or lack the tag that was asked for


def read_bill(
    source: Path | bytes,
    *,
    tag: str = "",
    only: tuple[str, str] | None = None,
    currency: str = "",
    accelerators: Mapping[str, int] | None = None,
) -> Bill:
    """Sums a bill. ActualsError: a column is missing, a cell is wrong, or it has several currencies.

    tag: the key that costs are split by. only: count rows with this tag alone. currency: count this one alone.
    accelerators: those of an instance type, by its name in lower case.
    """
    rows = rows_of(source, USED)
    _, names = next(rows, (1, {}))
    if missing := named(names, COLUMNS):
        raise ActualsError(
            f"lacks the columns {', '.join(missing)} of FOCUS; export the bill in FOCUS 1.2, with these columns"
        )
    lacking = [f"no column {name}: {what} unknown" for name, what in FURTHER.items() if plain(name) not in names]
    months: dict[str, Month] = {}
    currencies: Counter[str] = Counter()
    count = left_out = 0
    with localcontext(prec=60):
        for line, row in rows:
            count += 1
            money = text_in(row, "billingcurrency").upper()
            tags = tags_of(text_in(row, "tags") if not isinstance(row.get("tags"), list | dict) else row["tags"])
            if (currency and money != currency.upper()) or (only and tags.get(only[0]) != only[1]):
                left_out += 1
                continue
            currencies[money] += 1
            if len(currencies) > 1:
                raise ActualsError(
                    f"line {line}: has {' and '.join(sorted(currencies))}, which cannot be added; choose one currency"
                )
            _add(months, row, line, (tags.get(tag) or UNTAGGED) if tag else "", accelerators or {})
    if not months:
        raise ActualsError("has no rows of this tag and currency" if only or currency else "has no rows")
    return Bill(next(iter(currencies)), dict(sorted(months.items())), lacking, count, left_out)


def _add(months: dict[str, Month], row: Row, line: int, tag: str, accelerators: Mapping[str, int]) -> None:
    start = time_in(row.get("chargeperiodstart"), line, "ChargePeriodStart")
    given_end = row.get("chargeperiodend")
    end = time_in(given_end, line, "ChargePeriodEnd") if given_end else start
    limit = (datetime(start.year, start.month, 1, tzinfo=UTC) + timedelta(days=32)).replace(day=1)
    month = months.setdefault(f"{start:%Y-%m}", Month(start, start))
    month.starts_at, month.ends_at = min(month.starts_at, start), max(month.ends_at, min(end, limit))
    month.rows += 1
    category = text_in(row, "chargecategory").capitalize()
    if category not in CATEGORIES:
        raise ActualsError(f"line {line}, ChargeCategory: {category[:40]!r} is none of {', '.join(CATEGORIES)}")
    billed, effective = (amount_in(row, plain(n), line, n) for n in ("BilledCost", "EffectiveCost"))
    month.billed[category] = month.billed.get(category, ZERO) + billed
    month.effective[category] = month.effective.get(category, ZERO) + effective
    if tag:
        if len(tag) > LONG:
            raise ActualsError(f"line {line}: a value of the tag has more than {LONG:,} characters; choose another tag")
        if tag not in month.by_tag and len(month.by_tag) >= MANY:
            raise ActualsError(f"line {line}: the tag has more than {MANY:,} values; choose another one")
        before = month.by_tag.get(tag, (ZERO, ZERO))
        month.by_tag[tag] = before[0] + billed, before[1] + effective
    if category == "Usage":
        _add_usage(month, row, line, effective, accelerators)


def _add_usage(month: Month, row: Row, line: int, effective: Decimal, accelerators: Mapping[str, int]) -> None:
    status = text_in(row, "commitmentdiscountstatus").lower()
    is_unused = "unused" in (status, text_in(row, "capacityreservationstatus").lower())
    hours = accelerator_hours(row, line, accelerators, is_unused=is_unused)
    if status == "unused":
        month.commitment_unused += effective
    elif not is_unused:
        name = next((n for n in ("ContractedCost", "ListCost") if text_in(row, plain(n))), "EffectiveCost")
        cost = amount_in(row, plain(name), line, name)
        month.eligible += cost if "commitmentdiscountstatus" in row else ZERO
        if status == "used":
            month.commitment_used += effective
            month.covered += cost
    if is_unused:
        month.hours_unused += hours
    else:
        month.hours_used += hours


def accelerator_hours(row: Row, line: int, accelerators: Mapping[str, int], *, is_unused: bool) -> Decimal:
    """Hours of accelerators that a row of usage is of; 0: it is of none, or this is not known."""
    quantity, unit = "ConsumedQuantity", text_in(row, "consumedunit")
    if is_unused and not text_in(row, "consumedquantity"):  # FOCUS leaves it empty there
        quantity, unit = "CommitmentDiscountQuantity", text_in(row, "commitmentdiscountunit")
        if not text_in(row, plain(quantity)):
            quantity, unit = "PricingQuantity", text_in(row, "pricingunit")
    if not HOUR_UNITS.search(unit.replace("_", " ").replace("-", " ")):
        return ZERO
    count = 1 if CHIP_UNITS.search(unit) else chips_of(row, accelerators)
    return amount_in(row, plain(quantity), line, quantity) * count


def chips_of(row: Row, accelerators: Mapping[str, int]) -> int:
    """Accelerators of the machine that a row names: as SkuPriceDetails says, else those of the instance type."""
    found = {plain(key): value for name in ("xskudetails", "skupricedetails")
             for key, value in tags_of(row.get(name)).items()}  # fmt: skip
    for name in ("gpucount", "xgpucount", "acceleratorcount"):
        if re.fullmatch(r"\d{1,4}(\.0)?", text := str(found.get(name, ""))):
            return int(float(text))
    # FOCUS 1.0 has no column for it: there the sellers' own columns, or the words of the charge, name the machine
    texts = [str(found.get(name, "")) for name in ("instancetype", "servicetype")]
    texts += [text_in(row, n) for n in ("xinstancetype", "resourcetype", "skumeter", "xusagetype", "chargedescription")]
    for word in (word.lower().strip(".") for text in texts for word in WORDS.findall(text)):
        for name in (word, word.rpartition(":")[2]):
            if name in accelerators:
                return accelerators[name]
    return 0


def tags_of(given: Any) -> dict[str, str]:
    """Tags as FOCUS writes them (a JSON object), as pairs (Parquet), or as key=value; ..."""
    if isinstance(given, Mapping):
        return {str(key): _text(value) for key, value in given.items()}
    if isinstance(given, list):
        return dict(_pairs(given))
    text = str(given or "").strip()
    if text[:1] == '"' and text.count('":'):  # as Azure writes tags, without the braces
        text = f"{{{text}}}"
    if text[:1] in "{[" and text:
        try:
            return tags_of(json.loads(text)) if text.count("[") + text.count("{") < 200 else {}
        except (ValueError, RecursionError):
            return {}
    pairs = (part.partition("=") for part in re.split(r"[;,|]", text) if "=" in part)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _pairs(given: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for each in given:
        if isinstance(each, Mapping) and {"key", "value"} <= each.keys():
            yield str(each["key"]), _text(each["value"])
        elif isinstance(each, list | tuple) and len(each) == 2:
            yield str(each[0]), _text(each[1])


def _text(value: Any) -> str:
    if isinstance(value, Mapping | list | bool):
        return json.dumps(value, default=str)
    return "" if value is None else str(value)
