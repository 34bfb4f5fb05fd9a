"""The cost of an option, calculated again with pandas from docs/reference/cost-formulas.md and the JSON of an answer.

It imports nothing of Assay: an error of the engine cannot repeat itself here.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

HOURS, WEEK_HOURS = 730, 168
SECONDS = HOURS * 3600
MTOK = 1e6
RENT = ["instances", "interruptions", "cloud services"]
ENERGY = ["electricity", "cooling"]
STAFF = ["staff", "minimum team"]
OTHER = ["egress", "storage of weights", "colocation", "maintenance and support", "insurance", "licences"]
SETTLED = "commitment after the horizon"
RUNNING = [*RENT, SETTLED, *ENERGY, *STAFF, *OTHER]
COLUMNS = {"rent_usd": [*RENT, SETTLED], "energy_usd": ENERGY, "staff_usd": STAFF}
OFFICE_HOURS = [0.1] * WEEK_HOURS
for day in range(5):
    OFFICE_HOURS[24 * day + 8 : 24 * day + 18] = [0.5, *[1.0] * 8, 0.5]
PATHS = {"rent": "rent", "electricity": "electricity", "hardware": "hardware-price"}


@dataclass(frozen=True)
class Bill:
    """Payments by month, and what follows from them."""

    months: pd.DataFrame  # index 1 to H, a column for each line of the bill that is paid monthly
    flows: pd.DataFrame  # index 0 to H, the columns of money.cash_flow
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
    parts: dict[str, float]  # USD per month of each line of the bill


class Recalculation:
    """One option of an answer."""

    def __init__(self, answer: dict[str, Any], option: dict[str, Any]) -> None:
        self.spec, self.option = answer["workload"], option
        self.assumed = {row["name"]: row["value"] for row in answer["assumptions"]}
        self.tco, self.given = self.spec["tco"], self.spec["traffic"]
        self.horizon = self.tco["horizon_months"]
        self.month_rate = (1 + self.tco["discount_rate"]) ** (1 / 12) - 1
        self.months = pd.Index(range(1, self.horizon + 1), name="month")
        self.steps = option["money"]["plan"]["steps"]
        self.annuity = sum(self.v(m) for m in self.months)
        self.life_months = max(round(12 * self.assumed["depreciation-years"]), 1)

    def v(self, month: float) -> float:
        """Present value of 1 USD at the end of a month."""
        return (1 + self.month_rate) ** -month

    # --- forecast ---------------------------------------------------------------------------------------------

    @cached_property
    def traffic(self) -> pd.Series:
        """Of each month over today's."""
        given = self.given
        month = pd.Series(self.months, index=self.months, dtype=float)
        ratio = (1 + given["growth_fraction_per_year"]) ** ((month - 1) / 12)
        if given["ramp_months"]:
            ratio *= (month / (given["ramp_months"] + 1)).clip(upper=1)
        if season := given["seasonality"]:
            ratio *= [season[(m - 1) % len(season)] for m in self.months]
        if end := given["ends_after_months"]:
            ratio *= (month <= end).astype(float)
        return ratio

    @property
    def lost_hosts(self) -> int:
        """Hosts that may fail while the limits hold; unset: one where the option has a spare."""
        asked = self.spec["slo"]["availability"]
        return {"n+1": 1, "n+2": 2}.get(asked, int(asked is None and self.option["spare_replicas"] > 0))

    @property
    def bridge(self) -> dict[str, Any] | None:
        """What serves until bought servers arrive, if it is another deployment."""
        return self.option["money"]["plan"].get("bridge")  # type: ignore[no-any-return]

    @property
    def bridge_months(self) -> int:
        return int(self.bridge["months"]) if self.bridge else 0

    @property
    def own(self) -> tuple[int, int, int]:
        """(replicas that serve today, accelerators of each, accelerators of an instance) of the option itself."""
        held = next(step["accelerators"] for step in self.steps if step["from_month"] > self.bridge_months)
        replicas = self.option["replicas"]
        return replicas - self.option["spare_replicas"], self.option["accelerator_count"] // replicas, held

    @property
    def bridging(self) -> tuple[int, int, int]:
        """The same of what serves until the delivery."""
        if self.bridge is None:
            return self.own
        return self.bridge["replicas"], self.bridge["accelerators_per_replica"], self.steps[0]["accelerators"]

    def replicas(self, level: float = 1.0) -> pd.Series:
        """Replicas of each month at this fraction of the peak, spares included, of the option's own deployment."""
        return self.replicas_of(self.own, level)

    def replicas_by_month(self) -> pd.Series:
        """Replicas in service, until a delivery those of the bridge."""
        return self.until_delivery(self.replicas_of(self.bridging, 1.0), self.replicas())

    def instances(self, level: float = 1.0) -> pd.Series:
        """Instances of each month at this fraction of the peak; until a delivery those of the bridge."""
        return self.until_delivery(self.instances_of(self.bridging, level), self.instances_of(self.own, level))

    def until_delivery(self, first: pd.Series, later: pd.Series) -> pd.Series:
        return first.where(first.index <= self.bridge_months, later)

    def serving(self, carrying: int, level: float) -> pd.Series:
        load = self.traffic * level
        return (carrying * load - 1e-9).apply(math.ceil).clip(lower=1).where(load > 0, 0).astype(int)

    def replicas_of(self, deployment: tuple[int, int, int], level: float) -> pd.Series:
        carrying, each, held = deployment
        serving = self.serving(carrying, level)
        if self.spec["slo"]["availability"] == "2n":
            return 2 * serving
        spares = [self.lost_hosts * math.ceil(n / max(i - self.lost_hosts, 1)) if each <= held else self.lost_hosts
                  for n, i in zip(serving, self.instances_of(deployment, level), strict=True)]  # fmt: skip
        return (serving + spares).where(serving > 0, 0).astype(int)

    def instances_of(self, deployment: tuple[int, int, int], level: float) -> pd.Series:
        """Instances of each month; each is one host."""
        carrying, each, held = deployment
        serving, twice = self.serving(carrying, level), 2 if self.spec["slo"]["availability"] == "2n" else 1
        if each > held:
            needed = (serving + self.lost_hosts) * math.ceil(each / held)
        else:
            needed = (serving / (held // each)).apply(math.ceil) + self.lost_hosts
        return (twice * needed).where(serving > 0, 0).astype(int)

    # --- prices -----------------------------------------------------------------------------------------------

    def price(self, name: str, months: float) -> float:
        """The price so many months from today over today's."""
        points = (self.tco["price_paths"] or {}).get(name) or []
        if points:
            known = [(0, 1.0), *((p["month"], p["ratio"]) for p in points)]
            for (start, low), (end, high) in zip(known, known[1:], strict=False):
                if months <= end:
                    return float(low * (high / low) ** ((months - start) / (end - start)))
            return float(known[-1][1])
        return float((1 + self.assumed[f"{PATHS[name]}-change-per-year"]) ** (months / 12)) if name in PATHS else 1.0

    def monthly_price(self, name: str) -> pd.Series:
        """The price that each month pays over today's: that of its start."""
        return pd.Series([self.price(name, m - 1) for m in self.months], index=self.months)

    def residual(self, served: float, end_month: float, superseded: bool) -> float:
        """What the market pays at the end of a month over the capital, after months in service; less selling."""
        a = self.assumed
        if "residual-value-fraction" in self.tco:
            left = a["residual-value-fraction"] ** (max(served, min(12, self.life_months)) / self.life_months)
        else:
            curve = [1.0, *(a[f"residual-value-year-{year}"] for year in range(1, 6))]
            year = max(served, 12) / 12
            at = min(int(year), 4)
            left = curve[at] * (curve[at + 1] / curve[at]) ** (year - at)
            if superseded:
                left *= a["residual-superseded-ratio"]
        return float(left * self.price("resale", end_month) * (1 - a["resale-cost-fraction"]) / self.gross)

    @property
    def gross(self) -> float:
        """A price with VAT over the price."""
        return float(1 + self.assumed["vat-fraction"])

    def book(self, served: float) -> float:
        """Book value over the capital."""
        return float(max(1 - served / self.life_months, 0))

    # --- payments ---------------------------------------------------------------------------------------------

    @cached_property
    def purchases(self) -> pd.DataFrame:
        """Each purchase with its capital and what its sale brings, USD."""
        rows = []
        for step in self.steps:
            if step["action"] != "buy":
                continue
            first, last, server = step["from_month"], step["until_month"], step["server"]
            paid = step["instances"] * step["unit_usd_once"] * self.price("hardware", first - 1)
            capital = paid * sum(self.ratios(server).values()) * self.gross
            sold = capital * self.residual(last - first + 1, last, server["superseded"])
            rows.append(
                [first, last, capital, sold, server["price_usd"], server["accelerators_usd"], server["superseded"]]
            )
        columns = ["first", "last", "capital", "sold", "price_usd", "accelerators_usd", "superseded"]
        return pd.DataFrame(rows, columns=columns)

    def ratios(self, server: dict[str, Any]) -> dict[str, float]:
        """Components of the capital over the price of the server."""
        a, share = self.assumed, server["accelerators_usd"] / server["price_usd"]
        return {
            "accelerators": share,
            "host": 1 - share,
            "network": a["network-fraction-of-hardware"],
            "storage": a["storage-fraction-of-hardware"],
            "spares": a["spare-fraction"],
        }

    @cached_property
    def in_service(self) -> pd.DataFrame:
        """Instances by the hour (at most at once), under a term, and owned, in each month."""
        found = pd.DataFrame(0, index=self.months, columns=["hourly", "committed", "owned"])
        for step in self.steps:
            kind = {"reserve": "committed", "buy": "owned", "keep": "owned"}.get(step["action"])
            if kind:
                found.loc[step["from_month"] : step["until_month"], kind] += step["instances"]
        found["hourly"] = (self.instances() - found["committed"] - found["owned"]).clip(lower=0)
        return found

    @property
    def released(self) -> bool:
        """Whether a batch gives back its instances after each run."""
        return bool((self.option.get("batch") or {}).get("given_back"))

    @property
    def run_fraction(self) -> float:
        """Of all hours that a batch pays for instances by the hour, with all digits: from the hours of the plan."""
        if not self.released:
            return 1.0
        paid = sum(step["paid_hours"] for step in self.steps if step["action"] == "rent")
        return float(paid / (self.in_service["hourly"].sum() * HOURS))

    @property
    def run_and_start_fraction(self) -> float:
        """The same from the load and the start of each run."""
        batch = self.option["batch"]
        return float(min(self.option["utilisation"] + batch["start_hours"] / batch["every_hours"], 1))

    @cached_property
    def paid_instances(self) -> pd.Series:
        """Instances rented by the hour, averaged over all hours of the month."""
        fixed, curve = self.in_service[["committed", "owned"]].sum(axis=1), self.given["load_curve"]
        if self.spec["kind"] == "batch" or curve == "flat":
            return self.in_service["hourly"] * self.run_fraction
        week = OFFICE_HOURS if curve == "office_hours" else [one / max(curve) for one in curve]
        hours = {level: (self.instances(level) - fixed).clip(lower=0) for level in set(week)}
        return pd.Series([self.paid_in_week([hours[f][m] for f in week]) for m in self.months], index=self.months)

    def paid_in_week(self, needed: list[int]) -> float:
        """Instances paid on average, with the cold start of each before every hour that needs one more."""
        start_hours, paid = self.assumed["cold-start-s"] / 3600, 0.0
        for k in range(max(needed)):
            on = [n > k for n in needed]
            starts = sum(now and not before for before, now in zip(on[-1:] + on, on, strict=False))
            paid += min((sum(on) + starts * start_hours) / WEEK_HOURS, 1)
        return paid

    @cached_property
    def payments(self) -> pd.DataFrame:
        """What is paid at the end of each month, USD, by line of the bill."""
        a = self.assumed
        out = pd.DataFrame(0.0, index=self.months, columns=RUNNING)
        chips = {"rented": pd.Series(0.0, index=self.months), "owned": pd.Series(0.0, index=self.months)}
        licensed = pd.Series(0.0, index=self.months)
        for step, span in self.spans():
            held, n = step["accelerators"], step["instances"]
            if step["action"] == "rent":
                paid, most = (s.loc[span] for s in (self.paid_instances, self.in_service["hourly"]))
                usd = paid * HOURS * step["unit_usd_per_hour"] * self.monthly_price("rent").loc[span]
                chips["rented"].loc[span] += paid * held
                licensed.loc[span] += most * held * self.run_fraction
                self.pay_rent(out, span, step["term"], usd)
            elif step["action"] == "reserve":
                usd = n * HOURS * step["unit_usd_per_hour"] * self.price("rent", step["from_month"] - 1)
                beyond = max(step["paid_until_month"] - self.horizon, 0) * (1 - a["commitment-exit-fraction"])
                out.loc[self.horizon, SETTLED] += beyond * usd * (1 + a["cloud-addon-fraction"])
                chips["rented"].loc[span] += n * held
                licensed.loc[span] += n * held
                self.pay_rent(out, span, step["term"], usd)
            else:
                chips["owned"].loc[span] += n * held
                licensed.loc[span] += n * held
                self.pay_site(out, span, n, step["server"])
        out["licences"] = licensed * a["software-usd-per-accelerator-year"] / 12
        self.pay_services(out)
        out *= self.gross
        self.pay_staff(out, chips["rented"], chips["owned"])
        return out

    def spans(self) -> Iterator[tuple[dict[str, Any], slice]]:
        for step in self.steps:
            yield step, slice(step["from_month"], step["until_month"])

    def pay_rent(self, out: pd.DataFrame, span: slice, term: str, usd: Any) -> None:
        out.loc[span, "instances"] += usd
        out.loc[span, "cloud services"] += usd * self.assumed["cloud-addon-fraction"]
        if term == "spot":
            out.loc[span, "interruptions"] += usd * (1 / (1 - self.assumed["spot-lost-fraction"]) - 1)

    def pay_site(self, out: pd.DataFrame, span: slice, servers: int, server: dict[str, Any]) -> None:
        """Running costs of servers that are bought or kept."""
        a = self.assumed
        out.loc[span, "colocation"] += servers * server["colocation_usd_per_kw_month"] * server["kw_full"]
        usd = servers * (server["kw_mean"] or 0) * server["usd_per_kwh"] * HOURS
        usd = usd * self.monthly_price("electricity").loc[span]
        out.loc[span, "electricity"] += usd
        out.loc[span, "cooling"] += usd * (server["pue"] - 1)
        price = servers * server["price_usd"] / 12
        out.loc[span, "maintenance and support"] += a["maintenance-fraction-per-year"] * price
        out.loc[span, "insurance"] += a["insurance-fraction-per-year"] * price

    def pay_services(self, out: pd.DataFrame) -> None:
        services, served = self.option["money"]["services"], self.in_service
        if not services:
            return
        rented = served["hourly"] + served["committed"]
        share = (rented / served.sum(axis=1)).fillna(0.0)
        tokens = (self.given["output_tokens"] or {}).get("mean", 0) * self.option["requests_per_s"] * SECONDS
        gb = tokens * self.assumed["egress-bytes-per-output-token"] / 1e9
        out["egress"] = gb * (services["egress_usd_per_gb"] or 0) * self.traffic * share
        stored = self.option["host"]["checkpoint_gb"] * (services["storage_usd_per_gb_month"] or 0)
        out["storage of weights"] = stored * (rented > 0)

    def pay_staff(self, out: pd.DataFrame, rented: pd.Series, owned: pd.Series) -> None:
        a = self.assumed
        each = a["operator-usd-per-year"] / a["accelerators-per-operator"] / 12
        out["staff"] = each * (owned + rented * a["rented-staff-ratio"])
        out["minimum team"] = (self.least_staff - out["staff"]).clip(lower=0)

    @property
    def least_staff(self) -> pd.Series:
        """What the minimum team costs in each month, USD."""
        return self.engineers * self.assumed["operator-usd-per-year"] / 12

    @property
    def engineers(self) -> pd.Series:
        """The least of each month."""
        a, served = self.assumed, self.in_service
        owns, runs = served["owned"] > 0, served.sum(axis=1) > 0
        return owns * a["minimum-engineers-own"] + (runs & ~owns) * a["minimum-engineers-rented"]

    # --- the bill ---------------------------------------------------------------------------------------------

    @cached_property
    def flows(self) -> pd.DataFrame:
        """The cash flow, USD; the columns of the answer."""
        months, h = self.payments, self.horizon
        flows = pd.DataFrame(0.0, index=range(h + 1), columns=["capital_usd", "value_left_usd", "book_value_usd"])
        for p in self.purchases.itertuples():
            flows.loc[p.first - 1, "capital_usd"] += p.capital
            flows.loc[p.last, "value_left_usd"] += p.sold
            for m in range(p.first - 1, p.last + (p.last == h)):
                flows.loc[m, "book_value_usd"] += p.capital * self.book(m - p.first + 1)
        for name, columns in {"running_usd": RUNNING, **COLUMNS}.items():
            flows[name] = months[columns].sum(axis=1).reindex(flows.index, fill_value=0.0)
        flows["total_usd"] = flows["capital_usd"] + flows["running_usd"] - flows["value_left_usd"]
        flows["present_usd"] = flows["total_usd"] * [self.v(m) for m in flows.index]
        return flows

    def bill(self) -> Bill:
        months, bought, flows, h = self.payments, self.purchases, self.flows, self.horizon
        npv = flows["present_usd"].sum()
        terms = [step["paid_until_month"] - h for step in self.steps if step["action"] == "reserve"]
        exit_month = min(12, max(h // 2, 1))
        return Bill(
            months=months,
            flows=flows,
            npv_usd=npv,
            usd_per_month=npv / self.annuity,
            usd_over_horizon=flows["total_usd"].sum(),
            liability_usd=months[SETTLED].sum(),
            liability_months=max([*terms, 0]),
            capex_usd=bought["capital"].sum(),
            resale_usd=bought["sold"].sum(),
            most_usd_per_month=self.most(),
            exit_month=exit_month,
            exit_usd=self.leaving(exit_month),
            parts=self.parts(),
        )

    def most(self) -> float:
        """The most expensive month, each purchase as an equal monthly payment over its service, USD."""
        due = self.payments.drop(columns=SETTLED).sum(axis=1)
        for p in self.purchases.itertuples():
            n = p.last - p.first + 1
            annuity = sum(self.v(m) for m in range(1, n + 1))
            due.loc[p.first : p.last] += (p.capital - p.sold * self.v(n)) / annuity
        return float(due.max())

    def leaving(self, month: int) -> float:
        """Cost of leaving at the end of a month, USD."""
        usd, a = 0.0, self.assumed
        for p in self.purchases.itertuples():
            if p.first <= month < p.last:
                n = month - p.first + 1
                usd += p.capital * (self.book(n) - self.residual(n, month, p.superseded))
        for step in self.steps:
            if step["action"] == "reserve" and step["from_month"] <= month < step["paid_until_month"]:
                each = step["instances"] * HOURS * step["unit_usd_per_hour"] * (1 + a["cloud-addon-fraction"])
                each *= self.price("rent", step["from_month"] - 1) * self.gross
                usd += each * (step["paid_until_month"] - month) * (1 - a["commitment-exit-fraction"])
        return usd

    def parts(self) -> dict[str, float]:
        """USD per month of each line of the bill."""
        months, bought = self.payments, self.purchases
        weights = pd.Series([self.v(m) for m in months.index], index=months.index)
        found = {name: float((months[name] * weights).sum() / self.annuity) for name in RUNNING}
        if bought.empty:
            return found
        for p in bought.itertuples():
            ratios = self.ratios({"accelerators_usd": p.accelerators_usd, "price_usd": p.price_usd})
            for name, ratio in ratios.items():
                used = (p.capital - p.sold) / self.horizon * ratio / sum(ratios.values())
                found[name] = found.get(name, 0.0) + used
        present = sum(p.capital * self.v(p.first - 1) - p.sold * self.v(p.last) for p in bought.itertuples())
        used = (bought["capital"].sum() - bought["sold"].sum()) / self.horizon
        return found | {"cost of capital": present / self.annuity - used}

    # --- taxes ------------------------------------------------------------------------------------------------

    def taxes(self) -> tuple[float, float]:
        """(VAT over the horizon, present value after tax), USD."""
        income, vat = self.assumed["income-tax-fraction"], self.assumed["vat-fraction"]
        flows = self.flows
        paid_vat = vat / (1 + vat) * (flows["capital_usd"] + flows["running_usd"] - flows["staff_usd"])
        capital, book = flows["capital_usd"], flows["book_value_usd"]
        left = book.where(book.index < self.horizon, 0.0)
        written_off = book.shift(fill_value=0.0) + capital - left
        expenses = flows["running_usd"] + written_off - flows["value_left_usd"]
        after = flows["total_usd"] - income * expenses
        return float(paid_vat.sum()), float((after * [self.v(m) for m in flows.index]).sum())

    # --- what it means ----------------------------------------------------------------------------------------

    @property
    def mean_traffic(self) -> float:
        """Each month weighted by its present value."""
        return float(sum(ratio * self.v(m) for m, ratio in self.traffic.items()) / self.annuity)

    def unit_costs(self, usd_per_month: float) -> dict[str, float]:
        """USD per million tokens: blended, input, output, cached and computed input."""
        option, given, turns = self.option, self.given, self.option.get("conversation")
        prompt = given["input_tokens"]["mean"] * (given["documents_per_request"] or 1)
        hits = given["prefix_cache_hit_rate"]
        if turns:
            prompt, hits = turns["mean_prompt_tokens"], turns["reached_hit_fraction"]
        answer = given["output_tokens"]["mean"] if option["output_tokens_per_s"] else 0
        mtok = SECONDS * self.mean_traffic * option["requests_per_s"] / MTOK
        prefill = option["money"]["prefill_time_fraction"]
        cached = usd_per_month * self.cached_memory(prompt, answer, hits)
        rest = usd_per_month - cached
        found = {
            "blended": usd_per_month / (mtok * (prompt + answer)),
            "input": (cached + rest * prefill) / (mtok * prompt),
            "computed_input": rest * prefill / (mtok * prompt * (1 - hits)),
        }
        if answer:
            found["output"] = rest * (1 - prefill) / (mtok * answer)
        if hits:
            found["cached_input"] = cached / (mtok * prompt * hits)
        return found

    def cached_memory(self, prompt: float, answer: float, hits: float) -> float:
        """Share of an accelerator's memory that holds cached prompt tokens."""
        if not hits or not answer:
            return 0.0
        memory = self.option["memory"]
        return float(memory["kv_gib"] * prompt * hits / (prompt + answer / 2) / sum(memory.values()))

    def counted_units(self, usd_per_month: float) -> float:
        """USD for the units that the planner counts, such as images."""
        unit = self.option["unit_cost"]
        return float(usd_per_month / (unit["units_per_s"] * SECONDS * self.mean_traffic) * unit["count"])

    @property
    def used_fraction(self) -> float:
        """Utilization in paid hours over the horizon."""
        used = self.option["utilisation"]
        if self.released:
            used /= self.run_and_start_fraction
        needed = self.instances_of(self.own, 1.0)  # of the option itself, also before its delivery
        mean = sum(n * self.v(m) for m, n in needed.items()) / self.annuity
        return float(min(used * self.mean_traffic * self.option["instances"] / mean, 1))

    def against(self, rent_usd: list[float]) -> tuple[int | None, int | None, float | None]:
        """Break-even month, payback month and IRR against rent by the hour; its payments from month 1 on, USD."""
        flows, rent = self.flows, [0.0, *rent_usd]
        even = back = None
        owned = min(step["from_month"] for step in self.steps if step["action"] in ("buy", "keep"))
        for m in self.months:
            due = sum((flows["total_usd"][k] - rent[k]) * self.v(k) for k in range(m + 1))
            kept = sum(
                p.capital * self.residual(m - p.first + 1, m, p.superseded)
                for p in self.purchases.itertuples()
                if p.first - 1 <= m < p.last
            )
            cheaper = m >= owned and due - kept * self.v(m) <= 0
            even = (even or m) if cheaper else None
            ahead = m >= owned and flows["total_usd"].loc[:m].sum() <= sum(rent[: m + 1])
            back = (back or m) if ahead else None
        return even, back, yearly_return([rent[m] - flows["total_usd"][m] for m in flows.index])

    def crossing(self, lines: dict[str, list[float]]) -> int | None:
        """The first month with owned hardware from which on the line of owning is not above that of renting."""
        owned = min(step["from_month"] for step in self.steps if step["action"] in ("buy", "keep"))
        pairs = zip(lines["own"], lines["rent on_demand"], strict=True)
        above = [m for m, (own, rent) in enumerate(pairs) if own > rent + 0.01]
        month = max(owned, above[-1] + 1 if above else 0)
        return month if month in self.months else None

    def paid_hours(self, step: dict[str, Any]) -> float:
        """Instance-hours of a step."""
        if step["action"] == "rent":
            return float(self.paid_instances.loc[step["from_month"] : step["until_month"]].sum() * HOURS)
        last = step["paid_until_month"] if step["action"] == "reserve" else step["until_month"]
        return float(step["instances"] * HOURS * (last - step["from_month"] + 1))


class FleetRecalculation(Recalculation):
    """A shared fleet of servers that are bought for it.

    kinds: (accelerators, what a server is worth and takes to run) of each item of the bill of materials.
    """

    def __init__(self, answer: dict[str, Any], kinds: dict[str, tuple[int, dict[str, Any]]]) -> None:
        asked = answer["workload"]["workloads"]
        option: dict[str, Any] = {"money": {"plan": {"steps": []}, "services": None}}
        super().__init__({"workload": asked[0], "assumptions": answer["assumptions"]}, option)
        for item in answer["portfolio"]["money"]["items"]:
            accelerators, server = kinds[item["item"]]
            bought = {
                "action": "buy",
                "instances": round(item["quantity"]),
                "accelerators": accelerators,
                "from_month": item["from_month"],
                "until_month": item["until_month"],
                "unit_usd_once": server["price_usd"],
                "server": server | {"kw_mean": server["kw_full"]},
            }
            self.steps.append(bought)

    @cached_property
    def in_service(self) -> pd.DataFrame:
        found = pd.DataFrame(0, index=self.months, columns=["hourly", "committed", "owned"])
        for step, span in self.spans():
            found.loc[span, "owned"] += step["instances"]
        return found

    @property
    def engineers(self) -> pd.Series:
        return pd.Series(self.assumed["minimum-engineers-own"], index=self.months)


def share_one_team(workloads: Sequence[Recalculation]) -> None:
    """Lowers the line `minimum team` of each, in place: in a month they need one team, the largest, less all staff."""
    months = pd.RangeIndex(1, max(each.horizon for each in workloads) + 1)

    def by_month(series: Iterable[pd.Series]) -> pd.DataFrame:
        return pd.concat(list(series), axis=1).reindex(months).fillna(0.0)

    needed = by_month(each.least_staff for each in workloads).max(axis=1)
    staff = by_month(each.payments["staff"] for each in workloads).sum(axis=1)
    lacking = by_month(each.payments["minimum team"] for each in workloads).sum(axis=1)
    share = ((needed - staff).clip(lower=0) / lacking).where(lacking > 0, 0.0)
    for each in workloads:
        each.payments["minimum team"] *= share.loc[each.months]


def yearly_return(flows: list[float]) -> float | None:
    """The yearly rate at which the flows have no present value; None: nothing is paid first, or nothing is saved."""
    unequal = [flow for flow in flows if abs(flow) > 0.01]
    if not unequal or unequal[0] > 0 or max(unequal) < 0:
        return None

    def present(rate: float) -> float:
        return sum(flow * (1 + rate) ** (-m / 12) for m, flow in enumerate(flows))

    low, high = -0.99, 100.0
    if present(low) * present(high) > 0:
        return None
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if present(low) * present(middle) > 0 else (low, middle)
    return (low + high) / 2
