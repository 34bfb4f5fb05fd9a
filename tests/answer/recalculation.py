"""The cost of an option, calculated again with pandas from docs/explanation/costs.md and the JSON of an answer.

It imports nothing of Assay: an error of the engine cannot repeat itself here.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

HOURS = 730
SECONDS = HOURS * 3600
MTOK = 1e6
TERM_MONTHS = {"reserved_1y": 12, "reserved_3y": 36}
RUNNING = [
    "rent",
    "interruptions",
    "cloud services",
    "egress",
    "weight storage",
    "colocation",
    "electricity",
    "cooling",
    "maintenance and support",
    "insurance",
    "licences",
    "staff",
    "minimum team",
]
WEEK = [0.1] * 168  # office hours: full from 9 to 17, half in the hours around, a tenth at night and on weekends
for day in range(5):
    WEEK[24 * day + 8 : 24 * day + 18] = [0.5, *[1.0] * 8, 0.5]


@dataclass(frozen=True)
class Facts:
    """What the answer's JSON lacks; read from the rows of the catalog that the answer used."""

    asked_year: int
    release_year: int
    accelerators_of: dict[str, int]  # of each instance type or server
    share_of_accelerators: float = 0.65  # of a server's price


@dataclass(frozen=True)
class Bill:
    """Payments by month, and what follows from them."""

    months: pd.DataFrame  # index 1 to H
    flows: pd.DataFrame  # index 0 to H, the columns of money.cash_flow
    purchases: pd.DataFrame
    npv_usd: float
    usd_per_month: float
    usd_over_horizon: float
    liability_usd: float
    liability_months: int
    capex_usd: float
    resale_usd: float
    most_usd_per_month: float
    exit_month: int
    exit_usd: float
    parts: dict[str, float]


class Recalculation:
    def __init__(self, answer: dict[str, Any], option: dict[str, Any], facts: Facts) -> None:
        self.spec, self.option, self.facts = answer["workload"], option, facts
        self.assumed = {row["name"]: row["value"] for row in answer["assumptions"]}
        self.tco = self.spec["tco"]
        self.horizon = self.tco["horizon_months"]
        self.month_rate = (1 + self.tco["discount_rate"]) ** (1 / 12) - 1
        self.months = pd.Index(range(1, self.horizon + 1), name="month")
        self.steps = option["money"]["plan"]["steps"]
        self.annuity = sum(self.v(m) for m in self.months)

    def v(self, month: float) -> float:
        return (1 + self.month_rate) ** -month

    # --- forecast ---------------------------------------------------------------------------------------------

    def traffic(self) -> pd.Series:
        given = self.spec["traffic"]
        month = pd.Series(self.months, index=self.months, dtype=float)
        ratio = (1 + given["growth_fraction_per_year"]) ** ((month - 1) / 12)
        if given["ramp_months"]:
            ratio *= (month / (given["ramp_months"] + 1)).clip(upper=1)
        if season := given["seasonality"]:
            ratio *= [season[(m - 1) % len(season)] for m in self.months]
        if end := given["ends_after_months"]:
            ratio *= (month <= end).astype(float)
        return ratio

    def replicas(self, fraction: float = 1.0) -> pd.Series:
        """Replicas of each month at this share of the peak, spares included."""
        serving = self.option["replicas"] - self.option["spare_replicas"]
        traffic = self.traffic()
        needed = (serving * fraction * traffic - 1e-9).apply(math.ceil).clip(lower=1) + self.option["spare_replicas"]
        return needed.where(traffic > 0, 0).astype(int)

    def instances(self, replicas: pd.Series, instance: str) -> pd.Series:
        held = self.facts.accelerators_of[instance]
        each = self.option["accelerator_count"] // self.option["replicas"]
        if each > held:
            return replicas * math.ceil(each / held)
        return (replicas / (held // each)).apply(math.ceil)

    # --- prices -----------------------------------------------------------------------------------------------

    def price(self, name: str, month: float) -> float:
        """The price of a month over today's."""
        points = (self.tco["price_paths"] or {}).get(name) or []
        if points:
            known = [(0, 1.0), *((p["month"], p["ratio"]) for p in points)]
            for (start, low), (end, high) in zip(known, known[1:], strict=False):
                if month <= end:
                    return low * (high / low) ** ((month - start) / (end - start))
            return known[-1][1]
        key = {"rent": "rent", "electricity": "electricity", "hardware": "hardware-price"}.get(name)
        return (1 + self.assumed[f"{key}-change-per-year"]) ** ((month - 1) / 12) if key else 1.0

    def residual(self, month_in_service: float, end_month: float) -> float:
        """What the market pays at the end of `end_month`, over the capital, less the cost of selling."""
        a = self.assumed
        if "residual-value-fraction" in self.tco:
            life = 12 * a["depreciation-years"]
            left = a["residual-value-fraction"] ** min(month_in_service / life, 1)
        else:
            curve = [1.0, *(a[f"residual-value-year-{year}"] for year in range(1, 6))]
            year = month_in_service / 12
            at = min(int(year), 4)
            left = curve[at] * (curve[at + 1] / curve[at]) ** (year - at)
            if self.facts.asked_year - self.facts.release_year >= 5:
                left *= 1 - (1 - a["residual-superseded-ratio"]) * min(month_in_service / 12, 1)
        return left * self.price("resale", end_month) * (1 - a["resale-cost-fraction"])

    def book(self, months_in_service: float) -> float:
        return max(1 - months_in_service / (12 * self.assumed["depreciation-years"]), 0)

    # --- payments ---------------------------------------------------------------------------------------------

    def purchases(self) -> pd.DataFrame:
        """Each purchase with its capital and what its sale brings."""
        a = self.assumed
        capital_ratio = (
            1 + a["network-fraction-of-hardware"] + a["storage-fraction-of-hardware"] + a["spare-fraction"]
        )
        rows = []
        for step in self.steps:
            if step["action"] != "buy":
                continue
            first, last = step["from_month"], step["until_month"]
            servers = step["instances"] * step["unit_usd_once"] * self.price("hardware", first)
            capital = servers * capital_ratio
            rows.append(
                {
                    "instance": step["instance"],
                    "count": step["instances"],
                    "first": first,
                    "last": last,
                    "servers": servers,
                    "capital": capital,
                    "resale": capital * self.residual(last - first + 1, last),
                }
            )
        return pd.DataFrame(rows, columns=["instance", "count", "first", "last", "servers", "capital", "resale"])

    def in_service(self) -> pd.DataFrame:
        """Instances by the hour (at most at once), under a term, and owned, in each month."""
        found = pd.DataFrame(0, index=self.months, columns=["hourly", "committed", "owned"])
        for step in self.steps:
            kind = {"reserve": "committed", "buy": "owned", "keep": "owned"}.get(step["action"])
            if kind:
                found.loc[step["from_month"] : step["until_month"], kind] += step["instances"]
        needed = self.instances(self.replicas(), self.steps[0]["instance"])
        found["hourly"] = (needed - found["committed"] - found["owned"]).clip(lower=0)
        return found

    def paid_instances(self) -> pd.Series:
        """Instances rented by the hour, averaged over all hours of the month."""
        served = self.in_service()
        fixed = served["committed"] + served["owned"]
        batch, week = self.option.get("batch"), self.option["week"]
        if batch and batch["given_back"]:
            return served["hourly"] * min(batch["run_hours"] / batch["every_hours"], 1)
        if not week or week["paid"] != "autoscaled":
            return served["hourly"].astype(float)
        curve = self.spec["traffic"]["load_curve"]
        curve = WEEK if curve == "office_hours" else [one / max(curve) for one in curve]
        level = {f: (self.instances(self.replicas(f), self.steps[0]["instance"]) - fixed).clip(lower=0) for f in curve}
        hours = sum(level[f] for f in curve)
        starts = sum((level[f] - level[before]).clip(lower=0) for before, f in zip(curve[-1:] + curve, curve, strict=False))
        return (hours + starts * self.assumed["cold-start-s"] / 3600) / 168

    def payments(self) -> pd.DataFrame:
        a, option = self.assumed, self.option
        out = pd.DataFrame(0.0, index=self.months, columns=RUNNING)
        out.insert(0, "settled", 0.0)  # the part of rent and its additions that is due after the horizon
        served, hourly = self.in_service(), self.paid_instances()
        chips = pd.Series(0.0, index=self.months)
        owned_chips = pd.Series(0.0, index=self.months)
        for step in self.steps:
            span = slice(step["from_month"], step["until_month"])
            held = self.facts.accelerators_of[step["instance"]]
            if step["action"] == "rent":
                path = pd.Series([self.price("rent", m) for m in self.months], index=self.months)
                out.loc[span, "rent"] += (hourly * HOURS * step["unit_usd_per_hour"] * path).loc[span]
                chips.loc[span] += (hourly * held).loc[span]
            elif step["action"] == "reserve":
                signed = self.price("rent", step["from_month"])
                due = step["instances"] * HOURS * step["unit_usd_per_hour"] * signed
                out.loc[span, "rent"] += due
                beyond = max(step["paid_until_month"] - self.horizon, 0)
                rest = beyond * due * (1 - a["commitment-exit-fraction"])
                out.loc[self.horizon, "settled"] += rest
                chips.loc[span] += step["instances"] * held
            else:
                owned_chips.loc[span] += step["instances"] * held
        for purchase in self.purchases().itertuples():
            span = slice(purchase.first, purchase.last)
            out.loc[span, "maintenance and support"] += a["maintenance-fraction-per-year"] * purchase.servers / 12
            out.loc[span, "insurance"] += a["insurance-fraction-per-year"] * purchase.servers / 12
        if any(step["term"] == "spot" for step in self.steps):
            out["interruptions"] = out["rent"] * (1 / (1 - a["spot-lost-fraction"]) - 1)
        out["cloud services"] = out["rent"] * a["cloud-addon-fraction"]
        if served["owned"].any():
            out["colocation"] = a["colocation-usd-per-kw-month"] * option["site"]["kw_per_host"] * served["owned"]
            path = pd.Series([self.price("electricity", m) for m in self.months], index=self.months)
            kw = option["watts"] / option["pue"] / 1000 / option["instances"] * served["owned"]
            out["electricity"] = kw * option["usd_per_kwh"] * HOURS * path
            out["cooling"] = out["electricity"] * (option["pue"] - 1)
        if services := option["money"]["services"]:
            gb = self.output_tokens() * a["egress-bytes-per-output-token"] / 1e9
            rented = (served["hourly"] + served["committed"] > 0).astype(float)
            out["egress"] = gb * (services["egress_usd_per_gb"] or 0) * self.traffic()
            out["weight storage"] = option["host"]["checkpoint_gb"] * (services["storage_usd_per_gb_month"] or 0) * rented
        each = a["operator-usd-per-year"] / a["accelerators-per-operator"] / 12
        out["staff"] = each * (owned_chips + chips * a["rented-staff-ratio"])
        own = served["owned"] > 0
        least = own * a["minimum-engineers-own"] + (~own) * a["minimum-engineers-rented"]
        out["minimum team"] = (least * a["operator-usd-per-year"] / 12 - out["staff"]).clip(lower=0)
        return out

    def output_tokens(self) -> float:
        """Generated in a month of today's traffic."""
        given = self.spec["traffic"]
        tokens = (given["output_tokens"] or {}).get("mean", 0)
        return tokens * given["requests_per_s"]["mean"] * SECONDS

    def bill(self) -> Bill:
        months, bought, h = self.payments(), self.purchases(), self.horizon
        running = months[["settled", *RUNNING]].sum(axis=1)
        flows = pd.DataFrame(0.0, index=range(h + 1), columns=["capital_usd", "value_left_usd", "book_value_usd"])
        for p in bought.itertuples():
            flows.loc[p.first - 1, "capital_usd"] += p.capital
            flows.loc[p.last, "value_left_usd"] += p.resale
            # hardware that is sold at the end of a month is in service until then
            for m in range(p.first - 1, p.last + 1):
                if m < p.last or p.last == h:
                    flows.loc[m, "book_value_usd"] += p.capital * self.book(m - p.first + 1)
        flows["running_usd"] = running.reindex(flows.index, fill_value=0.0)
        flows["rent_usd"] = (months["rent"] + months["settled"]).reindex(flows.index, fill_value=0.0)
        flows["energy_usd"] = (months["electricity"] + months["cooling"]).reindex(flows.index, fill_value=0.0)
        flows["staff_usd"] = (months["staff"] + months["minimum team"]).reindex(flows.index, fill_value=0.0)
        flows["total_usd"] = flows["capital_usd"] + flows["running_usd"] - flows["value_left_usd"]
        flows["present_usd"] = flows["total_usd"] * [self.v(m) for m in flows.index]
        npv = flows["present_usd"].sum()
        exit_month = 12 if h > 12 else h // 2
        reserved = [step for step in self.steps if step["action"] == "reserve"]
        recovers = 1 - self.assumed["commitment-exit-fraction"]
        return Bill(
            months=months,
            flows=flows,
            purchases=bought,
            npv_usd=npv,
            usd_per_month=npv / self.annuity,
            usd_over_horizon=flows["total_usd"].sum(),
            liability_usd=months["settled"].sum(),
            liability_months=max([step["paid_until_month"] - h for step in reserved] + [0]),
            capex_usd=bought["capital"].sum(),
            resale_usd=bought["resale"].sum(),
            most_usd_per_month=self.most(running - months["settled"], bought),
            exit_month=exit_month,
            exit_usd=self.leaving(exit_month, bought, reserved, recovers),
            parts=self.parts(months, bought),
        )

    def most(self, running: pd.Series, bought: pd.DataFrame) -> float:
        """The most expensive month, each purchase as an equal monthly payment over its service."""
        due = running.copy()
        for p in bought.itertuples():
            n = p.last - p.first + 1
            annuity = sum(self.v(m) for m in range(1, n + 1))
            due.loc[p.first : p.last] += (p.capital - p.resale * self.v(n)) / annuity
        return due.max()

    def leaving(self, month: int, bought: pd.DataFrame, reserved: list[dict[str, Any]], recovers: float) -> float:
        usd = 0.0
        for p in bought.itertuples():
            if p.first <= month <= p.last:
                n = month - p.first + 1
                usd += p.capital * (self.book(n) - self.residual(n, month))
        for step in reserved:
            if step["from_month"] <= month < step["paid_until_month"]:
                each = step["instances"] * HOURS * step["unit_usd_per_hour"] * self.price("rent", step["from_month"])
                usd += each * (step["paid_until_month"] - month) * recovers
        return usd

    def parts(self, months: pd.DataFrame, bought: pd.DataFrame) -> dict[str, float]:
        """USD per month of each line of the bill."""
        weights = pd.Series([self.v(m) for m in months.index], index=months.index)
        found = {name: (months[name] * weights).sum() / self.annuity for name in RUNNING}
        found["rent"] += (months["settled"] * weights).sum() / self.annuity
        a = self.assumed
        used = (bought["capital"].sum() - bought["resale"].sum()) / self.horizon
        if not bought.empty:
            extra = {
                "network": a["network-fraction-of-hardware"],
                "storage": a["storage-fraction-of-hardware"],
                "spares": a["spare-fraction"],
            }
            share = self.facts.share_of_accelerators
            ratios = {"accelerators": share, "host": 1 - share, **extra}
            for name, ratio in ratios.items():
                found[name] = used * ratio / sum(ratios.values())
            present = sum(p.capital * self.v(p.first - 1) - p.resale * self.v(p.last) for p in bought.itertuples())
            found["cost of capital"] = present / self.annuity - used
        found["instances"] = found.pop("rent")
        return found

    # --- what it means ----------------------------------------------------------------------------------------

    def mean_traffic(self) -> float:
        """Each month weighted by its present value."""
        return sum(ratio * self.v(m) for m, ratio in self.traffic().items()) / self.annuity

    def unit_costs(self, usd_per_month: float) -> dict[str, float]:
        """USD per million tokens; input and output only where no prompt token is cached."""
        given, energy = self.spec["traffic"], self.option["money"]["energy"]
        seconds = SECONDS * self.mean_traffic() * given["requests_per_s"]["mean"]
        inputs = given["input_tokens"]["mean"]
        outputs = (given["output_tokens"] or {}).get("mean", 0)
        found = {"blended": usd_per_month / (seconds * (inputs + outputs)) * MTOK}
        busy = (energy["prefill_time_fraction"] or 0) + (energy["decode_time_fraction"] or 0)
        if busy and outputs and not given["prefix_cache_hit_rate"]:
            share = energy["prefill_time_fraction"] / busy
            found["input"] = usd_per_month * share / (seconds * inputs) * MTOK
            found["output"] = usd_per_month * (1 - share) / (seconds * outputs) * MTOK
        return found

    def against(self, rent_usd: float, bill: Bill) -> tuple[int | None, int | None, float | None]:
        """Break-even month, payback month and IRR against equal payments of rent."""
        flows = bill.flows
        paid = (flows["capital_usd"] + flows["running_usd"]).cumsum()
        discounted = ((flows["capital_usd"] + flows["running_usd"]) * [self.v(m) for m in flows.index]).cumsum()
        even = back = None
        for m in self.months:
            sold = sum(
                p.capital * self.residual(m - p.first + 1, m) for p in bill.purchases.itertuples() if p.first <= m
            )
            rented = rent_usd * sum(self.v(k) for k in range(1, m + 1))
            if even is None and discounted[m] - sold * self.v(m) <= rented:
                even = m
            if back is None and paid[m] <= rent_usd * m:
                back = m
        saved = [-flows["total_usd"][0], *(rent_usd - flows["total_usd"][m] for m in self.months)]
        return even, back, yearly_return(saved)


def yearly_return(flows: list[float]) -> float | None:
    """The yearly rate at which the flows have no present value."""

    def present(rate: float) -> float:
        return sum(flow * (1 + rate) ** (-m / 12) for m, flow in enumerate(flows))

    low, high = -0.99, 1e4
    if present(low) * present(high) > 0:
        return None
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if present(low) * present(middle) > 0 else (low, middle)
    return (low + high) / 2
