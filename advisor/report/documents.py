"""Papers for those who pay: decision memo, bill of materials, assumptions, cash flow (shown by finance_views.py)."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.http import Http404
from django.template.loader import render_to_string

from advisor.answer import CURRENCY, memo_parts
from advisor.report import markdown_escapes as md
from advisor.report.text import figure, meeting
from catalog.export import cell

Json = Mapping[str, Any]
MOST_OTHERS, MOST_REJECTED, MOST_RISKS, MOST_TURNS = 3, 2, 6, 3
COUNTS = {"M": "million", "G": "billion", "T": "trillion"}
LIMITS = {
    "ttft_ms_p95": "first token within {:g} ms",
    "tpot_ms_p95": "each further token within {:g} ms",
    "e2e_ms_p95": "whole answers within {:g} ms",
    "tokens_per_s_per_user": "{:g} tokens a second for each user",
}
TOTALS_ONLY = (
    "An earlier version of Assay computed this answer and kept only its totals. Ask the question again to get the "
    "parts of the bill, other ways to pay and the cash of each month."
)
NO_ANSWER = "Nothing was recommended, so there is nothing to decide: see why each accelerator was left out."
NO_SHARED_ANSWER = "A workload of this portfolio has no answer: ask each by itself, or ask the portfolio again."


# --- the memo ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Memo:
    """One page: what to buy, instead of what, at which risk, and what to test before signing."""

    title: str
    verdict: str
    dated: str
    money: list[tuple[str, str]]
    ways: list[str]
    others: list[str]
    risks: list[str]
    tests: list[str]


def memo(result: Json, rank: int = 1) -> Memo:
    if is_early_portfolio(result):
        return early_portfolio_memo(result)
    if together := shared_money(result):
        return Memo(
            title=f"{name_of(result)}: {together['of']}",
            verdict=result["verdict"],
            dated=dated(result, together),
            **memo_parts(result["portfolio"]),
        )
    r = chosen(result, rank)
    m = r["money"]
    return Memo(
        title=f"{name_of(result)}: {deal(r)}",
        verdict=plainly(result, r, rank),
        dated=dated(result, m),
        money=money_rows(r),
        ways=[way_text(way) for way in m["ways_to_pay"]] + [met(b) for b in m.get("break_even", [])]
        if m
        else [TOTALS_ONLY],
        others=others(result, rank),
        risks=risks(result, r),
        tests=tests(result, r),
    )


def early_portfolio_memo(result: Json) -> Memo:
    """What is known of a portfolio of an earlier version: its verdict and that of each workload."""
    return Memo(
        title=name_of(result),
        verdict=result["verdict"],
        dated=dated(result, None),
        money=[],
        ways=[TOTALS_ONLY],
        others=[f"{a['name']} alone: {a['verdict']}" for a in result["portfolio"]["alone"]],
        risks=[],
        tests=[],
    )


def deal(r: Json) -> str:
    """buy 1 x a server, or rent 8 x an instance: what is signed."""
    what = f"{r['instances']} x {r['instance'] or r['accelerator_name']}"
    what += f" ({r['accelerator_count']} x {r['accelerator_name']} at work)"
    return f"buy {what}" if r["acquisition"] == "own" else f"rent {what} at {r['provider']}"


def plainly(result: Json, r: Json, rank: int) -> str:
    """The choice for who does not run it, then how it is set up."""
    m, spread = r["money"], r["interval"].get("usd_per_month")
    term = "" if r["acquisition"] == "own" else f", {r.get('term', 'on_demand').replace('_', ' ')}"
    sure = f"; nine times in ten between {dollars(spread[0])} and {dollars(spread[1])}" if spread else ""
    today = f"; {dollars(m['capital_usd'])} of it is paid today" if m and m["capital_usd"] else ""
    cost = f"{dollars(r['usd_per_month'])} a month all in{sure}"
    said = deal(r)
    first = f"{said[0].upper()}{said[1:]}{term}: {cost}{today}"
    place = "" if rank == 1 else f" This is choice number {rank}."
    return f"{first}.{place} Set up as {r['label']}.{by_token(result, r)}"


def by_token(result: Json, r: Json) -> str:
    """What the cheapest endpoint would ask for the same traffic, said to be less where it is."""
    priced = [h for h in result.get("hosted") or [] if h.get("usd_per_month")]
    if not priced:
        return ""
    least = min(priced, key=lambda h: h["usd_per_month"])
    cheaper = least["usd_per_month"] < r["usd_per_month"]
    said = "Bought by the token the same traffic is cheaper" if cheaper else "By the token the same traffic costs more"
    return f" {said}: {dollars(least['usd_per_month'])} a month at {least['provider']}."


def met(b: Json) -> str:
    return re.sub(r"\s+([GMT]) tokens", lambda found: f" {COUNTS[found[1]]} tokens", meeting(b))


def dated(result: Json, m: Json | None) -> str:
    made = f"engine {result['engine_version']}, catalog {result['catalog']['version'][:12]}"
    as_of, currency = (m["prices_as_of"], m["currency"]) if m else (result["catalog"]["prices_as_of"], CURRENCY)
    return f"Prices as of {as_of}, {currency}; {made}"


def shared_money(result: Json) -> Json | None:
    """The money of a portfolio; none of a single workload."""
    found: Json | None = (result.get("portfolio") or {}).get("money")
    return found


def is_early_portfolio(result: Json) -> bool:
    """Whether a version computed it that kept no money of portfolios; where one has no answer, it is None."""
    return bool(result.get("portfolio")) and "money" not in result["portfolio"]


def has_papers(result: Json) -> bool:
    """Whether something was recommended that a document can be about."""
    return bool(result.get("recommendations") or shared_money(result) or is_early_portfolio(result))


def chosen(result: Json, rank: int) -> Json:
    """The option of this rank; its `money` is None in answers of early versions."""
    found = [r for r in result["recommendations"] if r["rank"] == rank]
    if not found:
        raise Http404("This advice has no option of that rank.")
    return found[0]


def name_of(result: Json) -> str:
    workload = result["workload"]
    return str(workload["name"] if isinstance(workload, Mapping) else workload)


def money_rows(r: Json) -> list[tuple[str, str]]:
    m = r["money"]
    token = "input" if "latency_ms" in r else "output"
    month = ("per month", dollars(r["usd_per_month"], r["interval"].get("usd_per_month")))
    each = [
        (f"per million {token} tokens", price(r, f"usd_per_mtok_{token}")),
        ("per million tokens, blended", price(r, "usd_per_mtok_blended")),
        ("the same at full capacity", f"${figure(r['usd_per_mtok_blended_at_capacity'])}"),
    ]
    if not m:
        total = ("net present value", dollars(r["tco_usd"], r["interval"].get("tco_usd")))
        return [month, total, *each, ("power at the load", f"{figure(r['watts'])} W")]
    return [
        month,
        ("bought today", dollars(m["capital_usd"]) if m["capital_usd"] else "nothing: rented"),
        (f"net present value over {m['horizon_months']} months", dollars(m["npv_usd"], r["interval"].get("tco_usd"))),
        *each,
        ("power at the load", f"{figure(r['watts'])} W, {figure(m['energy']['kwh_per_month'])} kWh a month"),
    ]


def price(r: Json, name: str) -> str:
    low_high = r["interval"].get(name)
    spread = f" ({figure(low_high[0])} to {figure(low_high[1])})" if low_high else ""
    return f"${figure(r[name])}{spread}"


def dollars(usd: float, low_high: Sequence[float] | None = None) -> str:
    return f"${usd:,.0f}" + (f" ({low_high[0]:,.0f} to {low_high[1]:,.0f})" if low_high else "")


def way_text(way: Json) -> str:
    bought = f", {dollars(way['capital_usd'])} of it today" if way["capital_usd"] else ""
    note = " (assumed discount, no price in the catalog)" if way["basis"] == "assumed" else ""
    term = way["term"].replace("_", " ")
    return (
        f"{whence(way)}{'' if bought else f', {term}'}: {dollars(way['usd_per_month'])} a month, "
        f"{dollars(way['npv_usd'])} net present value{bought}{note}"
    )


def whence(r: Json) -> str:
    return "bought" if r["acquisition"] == "own" else f"rented at {r['provider']}"


def others(result: Json, rank: int) -> list[str]:
    """The other options, then the first of what was left out, with its reason."""
    ranked = [
        f"{r['accelerator_count']} x {r['accelerator_name']}, {whence(r)}: {dollars(r['usd_per_month'])} a month"
        for r in result["recommendations"]
        if r["rank"] != rank
    ][:MOST_OTHERS]
    left = [r for r in result["rejected"] if r["reason"] not in ("excluded", "outranked")]
    return ranked + [f"{r['accelerator']}: {r['detail'].split(' (')[0]}" for r in left[:MOST_REJECTED]]


def risks(result: Json, r: Json) -> list[str]:
    said: list[str] = []
    m = r["money"] or {"parts": []}
    if r["acquisition"] == "own" and r["money"]:
        left = m["cash_flow"][-1]["value_left_usd"]
        said.append(f"{dollars(left)} of value is counted on at the end: what used hardware then brings is not known")
    if any(part["name"] == "interruptions" for part in m["parts"]):
        said.append("spot instances may be taken away at any time: the allowance is an assumption")
    if not_known := (m.get("services") or {}).get("said"):
        said.append(not_known)
    said += r["warnings"]
    turns = [
        f"{item['detail']} ({item['assumption']})" for item in result.get("sensitivity", []) if item.get("winner_after")
    ]
    return said[:MOST_RISKS] + [f"the choice turns: {turn}" for turn in turns[:MOST_TURNS]]


def tests(result: Json, r: Json) -> list[str]:
    """What shows, on the real machines, whether this answer holds."""
    spec = result["workload"] if isinstance(result["workload"], Mapping) else {}
    peak = ((spec.get("traffic") or {}).get("requests_per_s") or {}).get("peak")
    slo = spec.get("slo") or {}
    limits = ", ".join(words.format(slo[key]) for key, words in LIMITS.items() if slo.get(key))
    seller = "its seller" if r["acquisition"] == "own" else r["provider"]
    said = [
        f"load test one replica at its share of the peak{f' of {peak:g} requests/s' if peak else ''} with your own "
        f"prompts{f': {limits}, 95 of 100 times' if limits else ''}",
        f"confirm the price of {r['instance'] or r['accelerator']} with {seller} in writing: ours is of "
        f"{r['money']['prices_as_of'] if r['money'] else r['price_as_of']}",
    ]
    if r["weights_dtype"] not in ("bf16", "fp16"):
        said.append(f"compare answers of {r['quantization']} weights with the 16-bit model on your own evaluation")
    if r["basis"] != "measured":
        said.append("run the probe on this chip: its efficiency is borrowed, and the interval is wide for that")
    return said


def memo_markdown(found: Memo) -> str:
    def listed(title: str, items: Sequence[str]) -> list[str]:
        return [md.heading(2, title), "", *map(md.item, items), ""] if items else []

    head = ["## Costs", "", "| figure | value (90 % interval) |", "| --- | --- |"]
    return "\n".join(
        [
            md.heading(1, f"Decision memo: {found.title}"), "", md.paragraph(found.verdict), "",
            *([*head, *map(md.row, found.money), ""] if found.money else []),
            *listed("Payment options and break-even", found.ways),
            *listed("Alternatives considered", found.others),
            *listed("Risks", found.risks),
            *listed("Before signing", found.tests),
            md.paragraph(found.dated), "",
        ]
    )  # fmt: skip


# --- tables -----------------------------------------------------------------------------------------------------


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def bill_of_materials(result: Json, rank: int) -> str:
    """What is bought or rented, one line each, with whom and at what price."""
    if is_early_portfolio(result):
        return csv_of(BILL_HEAD, [("", TOTALS_ONLY)])
    if together := shared_money(result):
        head = tuple(together["items"][0])
        return csv_of((*head, "currency"), ([*item.values(), together["currency"]] for item in together["items"]))
    r = chosen(result, rank)
    m = r["money"]
    if not m:
        return csv_of(BILL_HEAD, early_items(r))
    once = m["purchase_usd"] / r["instances"] if m["purchase_usd"] else None
    hourly = None if once else rent_of_one(r)
    first = (
        r["instances"], r["instance"] or r["accelerator_name"], r["provider"], r["region"], once, hourly,
        m["currency"], m["prices_as_of"], r["price_source"],
    )  # fmt: skip
    beside = []
    if once:
        extra = m["capital_usd"] - m["purchase_usd"]
        beside.append((1, "share of network, storage and spares", "own", r["region"], extra, None, *first[6:8], SHARE))
    beside += [
        (1, part["name"], r["provider"], r["region"], None, part["usd_per_hour"], *first[6:8], "assumptions.csv")
        for part in m["parts"]
        if part["group"] in ("running", "services") and part["usd_per_hour"]
    ]
    software = (r["replicas"], f"{r['framework']} {r['framework_version']}", "", "", 0, 0, *first[6:8], "open source")
    return csv_of(BILL_HEAD, [first, *beside, software])


BILL_HEAD = (
    "quantity", "item", "provider", "region", "unit_usd_once", "unit_usd_per_hour", "currency", "price_as_of", "source",
)  # fmt: skip


def early_items(r: Json) -> list[Sequence[Any]]:
    """The lines of an answer that holds only totals: what is bought or rented, without a price of its own."""
    where, paid = (r["provider"], r["region"]), (CURRENCY, r["price_as_of"], r["price_source"])
    return [
        (r["instances"], r["instance"] or r["accelerator_name"], *where, None, None, *paid),
        (r["replicas"], f"{r['framework']} {r['framework_version']}", "", "", 0, 0, *paid[:2], "open source"),
        (1, "all of it together", *where, None, r["usd_per_hour"], *paid),
        ("", TOTALS_ONLY),
    ]


def rent_of_one(r: Json) -> float:
    """USD per hour of one rented instance; a quotient of floats, so without its last digits."""
    together = next(p for p in r["money"]["parts"] if p["name"] == "instances")["usd_per_hour"]
    return round(together / r["instances"], 6)


SHARE = "fractions of the purchase: assumptions.csv"


def assumptions_csv(result: Json, rank: int) -> str:
    head = ("name", "value", "unit", "default", "low", "high", "as_of", "source")
    return csv_of(head, ([item.get(name) for name in head] for item in result.get("assumptions", [])))


def cash_flow_csv(result: Json, rank: int) -> str:
    """Cash of each month to the cent; what is left in value at the end is a credit."""
    names = ("month", "capital_usd", "running_usd", "value_left_usd", "total_usd", "present_usd")
    if is_early_portfolio(result):
        return csv_of((*names, "currency", "prices_as_of"), [(TOTALS_ONLY,)])
    m = shared_money(result) or chosen(result, rank)["money"]
    if not m:
        return csv_of((*names, "currency", "prices_as_of"), early_cash(chosen(result, rank)))
    # Numbers, not text: `cell` would put a quote before a text that begins with a minus.
    rows = ([Decimal(f"{f[n]:.2f}") if n != "month" else f[n] for n in names] for f in m["cash_flow"])
    return csv_of((*names, "currency", "prices_as_of"), ([*row, m["currency"], m["prices_as_of"]] for row in rows))


def early_cash(r: Json) -> list[Sequence[Any]]:
    """The two figures that an answer of totals has: what a month costs, and the present value of all of them."""
    paid = (CURRENCY, r["price_as_of"])
    return [
        ("each", None, None, None, f"{r['usd_per_month']:.2f}", None, *paid),
        ("all", None, None, None, None, f"{r['tco_usd']:.2f}", *paid),
        (TOTALS_ONLY,),
    ]


def memo_text(result: Json, rank: int) -> str:
    return memo_markdown(memo(result, rank))


def memo_html(result: Json, rank: int) -> str:
    return render_to_string("advisor/memo.html", {"memo": memo(result, rank)})


DOCUMENTS: dict[str, tuple[str, Callable[[Json, int], str]]] = {
    "memo.html": ("text/html", memo_html),
    "memo.md": ("text/markdown", memo_text),
    "bill-of-materials.csv": ("text/csv", bill_of_materials),
    "assumptions.csv": ("text/csv", assumptions_csv),
    "cash-flow.csv": ("text/csv", cash_flow_csv),
}
