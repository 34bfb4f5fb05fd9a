"""A bill and the tokens served, by month, beside what an option of an answer forecast for the same hours."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from advisor.actuals.bill import Bill, Month, cents, in_cents
from advisor.actuals.files import ActualsError
from advisor.actuals.tokens import Served
from advisor.engine.terms import HOURS_PER_MONTH, usd_text

Json = dict[str, Any]
SAME_FRACTION = 0.02  # smaller differences are not explained
COMPARED = ("Usage", "Purchase", "Adjustment")  # taxes and credits are not in a forecast
MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """An option's figures. Tokens follow from its cost and its prices per token, so that they fit each other."""

    label: str
    usd_per_month: float  # of 730 hours
    usd_per_mtok_input: float | None
    usd_per_mtok_output: float | None
    usd_per_mtok_blended: float | None
    accelerators: int | None
    output_tokens_per_s_at_capacity: float | None = None
    per_usd: float = 1.0  # units of the bill's currency

    @property
    def mtok_per_month(self) -> float | None:
        return self.usd_per_month / self.usd_per_mtok_blended if self.usd_per_mtok_blended else None

    def of(self, hours: float) -> Json:
        """The forecast for some hours, in the currency of the bill."""
        share = hours / HOURS_PER_MONTH
        mtok = self.mtok_per_month
        return {
            "cost": self.usd_per_month * share * self.per_usd,
            "mtok": None if mtok is None else mtok * share,
            "per_mtok_input": _times(self.usd_per_mtok_input, self.per_usd),
            "per_mtok_output": _times(self.usd_per_mtok_output, self.per_usd),
            "per_mtok_blended": _times(self.usd_per_mtok_blended, self.per_usd),
            "accelerator_hours": None if self.accelerators is None else self.accelerators * hours,
        }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def forecast_of(option: Mapping[str, Any], per_usd: float = 1.0) -> Forecast:
    """From the JSON of a recommendation. ActualsError: it has no cost per month."""
    month = option.get("usd_per_month")
    if not isinstance(month, int | float) or isinstance(month, bool):
        raise ActualsError("rank: this option has no cost per month to compare with; choose another one")
    names = ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended")
    return Forecast(
        label=str(option.get("label") or ""),
        usd_per_month=float(month),
        **{name: option.get(name) for name in names},
        accelerators=option.get("accelerator_count"),
        output_tokens_per_s_at_capacity=option.get("output_tokens_per_s_at_capacity"),
        per_usd=per_usd,
    )


def compared(bill: Bill, served: Mapping[str, Served], forecast: Forecast | None, tag: str = "") -> Json:
    """Forecast against actual by month, with totals that agree with the bill to the cent."""
    months = [_month(name, month, served.get(name), forecast) for name, month in bill.months.items()]
    return {
        "currency": bill.currency,
        "forecast": forecast and {"label": forecast.label, "usd_per_month": forecast.usd_per_month},
        "tag": tag,
        "rows": {"read": bill.rows, "left_out": bill.left_out},
        "total": _total(bill),
        "months": months,
        "notes": [*bill.notes, *_unmatched(bill, served)],
    }


def _total(bill: Bill) -> Json:
    with localcontext(prec=60):
        sums: dict[str, dict[str, Decimal]] = {"billed": {}, "effective": {}}
        tags: dict[str, dict[str, Decimal]] = {"billed": {}, "effective": {}}
        for month in bill.months.values():
            for kind, into in sums.items():
                for category, value in getattr(month, kind).items():
                    into[category] = into.get(category, Decimal(0)) + value
            for value, pair in month.by_tag.items():
                for into, amount in zip(tags.values(), pair, strict=True):
                    into[value] = into.get(value, Decimal(0)) + amount
        total = {kind: float(cents(sum(parts.values(), Decimal(0)))) for kind, parts in sums.items()}
        by = {f"{kind}_by_category": in_cents(parts) for kind, parts in sums.items()}
        by |= {f"{kind}_by_month": in_cents({n: sum(getattr(m, kind).values(), Decimal(0))
                                             for n, m in bill.months.items()}) for kind in sums}  # fmt: skip
        by |= {f"{kind}_by_tag": in_cents(parts) for kind, parts in tags.items() if parts}
    return {**total, **by}


def _month(name: str, month: Month, served: Served | None, forecast: Forecast | None) -> Json:
    with localcontext(prec=60):
        billed, effective = (sum(part.values(), Decimal(0)) for part in (month.billed, month.effective))
        cost = sum((month.effective.get(category, Decimal(0)) for category in COMPARED), Decimal(0))
        paid = month.hours_used + month.hours_unused
        commitment = month.commitment_used + month.commitment_unused
        spent: Json = {
            "month": name,
            "hours": month.covered_hours,
            "billed": float(cents(billed)),
            "effective": float(cents(effective)),
            "billed_by_category": in_cents(month.billed),
            "effective_by_category": in_cents(month.effective),
            "compared_cost": float(cents(cost)),
            "accelerator_hours": {"used": float(month.hours_used), "paid": float(paid)} if paid > 0 else None,
            "utilization_fraction": _share(month.hours_used, paid),
            "commitment_coverage_fraction": _share(month.covered, month.eligible),
            "commitment_utilization_fraction": _share(month.commitment_used, commitment),
            "by_tag": [
                {"value": value, "billed": billed_by[value], "effective": effective_by[value]}
                for billed_by, effective_by in [_by_tag(month)]
                for value in sorted(billed_by, key=lambda v: (-effective_by[v], v))
            ],
        }
    planned = forecast.of(month.covered_hours) if forecast else None
    spent["forecast"] = planned
    spent["tokens"] = served and {
        "input": float(served.input), "output": float(served.output),
        "requests": None if served.requests is None else float(served.requests),
    }  # fmt: skip
    spent["actual"] = _per_token(float(cost), served, planned)
    spent["load_fraction"] = _load(forecast, served, spent)
    spent["explained"] = list(_explained(spent, planned, served))
    return spent


def _share(part: Decimal, whole: Decimal) -> float | None:
    """None: there is no whole, or refunds of other months leave no share of it."""
    return float(part / whole) if whole > 0 and 0 <= part <= whole else None


def _by_tag(month: Month) -> tuple[dict[str, float], dict[str, float]]:
    parts = [{value: pair[n] for value, pair in month.by_tag.items()} for n in (0, 1)]
    return in_cents(parts[0]), in_cents(parts[1])


def _per_token(cost: float, served: Served | None, planned: Json | None) -> Json:
    """Cost per million tokens. Input and output share the cost in the ratio of their forecast prices."""
    found: Json = dict.fromkeys(("per_mtok_input", "per_mtok_output", "per_mtok_blended"))
    if served is None or not served.total:
        return found
    given, made = float(served.input) / MILLION, float(served.output) / MILLION
    found["per_mtok_blended"] = cost / (given + made)
    if planned and planned["per_mtok_input"] is not None:
        weights = planned["per_mtok_input"], planned["per_mtok_output"] or 0.0
        if weighed := weights[0] * given + weights[1] * made:
            found["per_mtok_input"] = cost * weights[0] / weighed
            found["per_mtok_output"] = cost * weights[1] / weighed if weights[1] else None
    return found


def _load(forecast: Forecast | None, served: Served | None, spent: Json) -> float | None:
    """Output tokens served, as a share of what the paid machines could have served at the forecast's capacity."""
    most = forecast and forecast.accelerators and forecast.output_tokens_per_s_at_capacity
    if not (forecast and forecast.accelerators and most and served):
        return None
    hours = (spent["accelerator_hours"] or {}).get("paid") or forecast.accelerators * spent["hours"]
    capacity = most / forecast.accelerators * hours * 3600
    return float(served.output) / capacity if capacity else None


def _explained(spent: Json, planned: Json | None, served: Served | None) -> Any:
    """Why the cost differs from the forecast, in plain words, the largest causes first."""
    if planned and planned["cost"]:
        ratio = spent["compared_cost"] / planned["cost"]
        said_hours = f"these {spent['hours']:,.0f} hours"
        yield f"The cost without taxes and credits is {_percent(ratio)} the forecast for {said_hours}."
        hours = spent["accelerator_hours"]
        if hours and planned["accelerator_hours"]:
            machines = hours["paid"] / planned["accelerator_hours"]
            if abs(machines - 1) > SAME_FRACTION:
                word = "more machines than planned, or for longer" if machines > 1 else "fewer machines than planned"
                yield f"Accelerator hours paid are {_percent(machines)} the plan: {word}."
            if hours["paid"] and abs(ratio / machines - 1) > SAME_FRACTION:
                yield f"The price of an accelerator hour is {_percent(ratio / machines)} the forecast."
        if served and planned["mtok"]:
            traffic = float(served.total) / MILLION / planned["mtok"]
            if abs(traffic - 1) > SAME_FRACTION:
                word = "lower" if traffic < 1 else "higher"
                yield f"Traffic is {word} than planned: {_percent(traffic)} the forecast's tokens."
        elif planned["mtok"]:
            yield "No tokens served are known for this month, so costs per token cannot be compared."
    use = spent["commitment_utilization_fraction"]
    if use is not None and use < 1 - SAME_FRACTION:
        yield f"{1 - use:.0%} of the commitments were paid for and not used."
    for category, amount in spent["effective_by_category"].items():
        if category not in COMPARED and amount:
            yield f"{category} of {amount:,.2f} is not part of the comparison."


def _percent(ratio: float) -> str:
    if abs(ratio - 1) <= 0.005:
        return "equal to"
    return f"{abs(ratio - 1):.0%} {'above' if ratio > 1 else 'below'}"


def _unmatched(bill: Bill, served: Mapping[str, Served]) -> list[str]:
    only = sorted(served.keys() - bill.months.keys())
    found = [f"tokens of {', '.join(only)} have no month in the bill"] if only else []
    if not any(month.hours_used or month.hours_unused for month in bill.months.values()):
        found.append(
            "no row of usage names its accelerators (GpuCount or InstanceType in SkuPriceDetails, or a unit such as "
            "GPU hours), so their hours are unknown"
        )
    return found


# --- in words ---------------------------------------------------------------------------------------------------


def lines(result: Json) -> list[tuple[str, ...]]:
    """The table of a month after the other: (month, figure, forecast, actual)."""
    money = result["currency"]
    found: list[tuple[str, ...]] = []
    for month in result["months"]:
        planned, actual = month["forecast"] or {}, month["actual"]
        tokens = month["tokens"] and (month["tokens"]["input"] + month["tokens"]["output"]) / MILLION
        hours = month["accelerator_hours"] or {}
        rows: list[tuple[str, Any, Any, str]] = [
            (f"cost without taxes and credits, {money}", planned.get("cost"), month["compared_cost"], ",.2f"),
            (f"billed, {money}", None, month["billed"], ",.2f"),
            (f"effective, {money}", None, month["effective"], ",.2f"),
            ("million tokens", planned.get("mtok"), tokens, ",.1f"),
            *((f"{money} per million {kind} tokens", planned.get(key), actual[key], ",.4f")
              for kind in ("input", "output", "blended") for key in [f"per_mtok_{kind}"]),
            ("accelerator hours paid", planned.get("accelerator_hours"), hours.get("paid"), ",.1f"),
            ("accelerator hours used", None, hours.get("used"), ",.1f"),
            ("used of paid hours", None, month["utilization_fraction"], ".1%"),
            ("tokens of capacity", None, month["load_fraction"], ".1%"),
            ("commitment coverage", None, month["commitment_coverage_fraction"], ".1%"),
            ("commitments used", None, month["commitment_utilization_fraction"], ".1%"),
        ]  # fmt: skip
        for name, before, after, form in rows:
            if before is not None or after is not None:
                found.append((month["month"], name, _shown(before, form), _shown(after, form)))
        found += [
            (month["month"], f"effective, {result['tag']}={each['value']}", "", f"{each['effective']:,.2f}")
            for each in month["by_tag"]
        ]
    return found


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def said(result: Json) -> list[str]:
    """The sentences: the forecast, the totals, what explains each month, and notes."""
    total, money = result["total"], result["currency"]
    told = [f"Total billed {total['billed']:,.2f} {money}, effective {total['effective']:,.2f} {money}."]
    if planned := result["forecast"]:
        told.insert(0, f"Forecast: {planned['label']}, {usd_text(planned['usd_per_month'])} a month of 730 hours.")
    told += [f"{month['month']}: {sentence}" for month in result["months"] for sentence in month["explained"]]
    return told + [f"Note: {note}." for note in result["notes"]]


def in_words(result: Json, *, markdown: bool) -> str:
    """The sentences and the table as text."""
    rows = [("month", "figure", "forecast", "actual"), *lines(result)]
    if markdown:
        table = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        table.insert(1, "|---|---|---:|---:|")
        return "\n".join([*(f"- {sentence}" for sentence in said(result)), "", *table])
    widths = [max(len(row[n]) for row in rows) for n in range(4)]
    form = "{:<%d}  {:<%d}  {:>%d}  {:>%d}" % tuple(widths)  # noqa: UP031
    return "\n".join([*said(result), "", *(form.format(*row).rstrip() for row in rows)])
