"""The closed-form ranking as text."""

from advisor.engine.terms import amount_digits
from advisor.result import QuickOption, QuickRanking

HEAD = ("#", "option", "from", "USD/month", "USD/M blended", "TTFT p95 ms", "TPOT p95 ms", "tok/s per chip")


def quick_table(ranking: QuickRanking) -> str:
    """A table of the ranked options, marked as estimates, with what is owned and the nearest if nothing is ranked."""
    lines = [f"{ranking.mark}; prices of {ranking.prices_as_of}; ranked by {ranking.objective}"]
    rows = [HEAD, *(cells(option) for option in ranking.options)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    for row in rows:
        left = [row[k].ljust(widths[k]) for k in range(3)]
        right = [row[k].rjust(widths[k]) for k in range(3, len(HEAD))]
        lines.append("  ".join([*left, *right]).rstrip())
    if not ranking.options:
        lines.append("No option is within the limits by this estimate.")
        lines += [f"nearest: {o.label}, {o.over_limit_fraction:.0%} over a latency limit" for o in ranking.missed[:1]]
    lines += [f"owned {o.accelerator_count} x {o.accelerator_name}: {o.detail}" for o in ranking.owned]
    return "\n".join(lines)


def cells(o: QuickOption) -> tuple[str, ...]:
    return (
        str(o.rank),
        o.label,
        f"{o.provider} {o.term.replace('_', '-')}" if o.acquisition != "api" else "hosted API (published)",
        amount_digits(o.usd_per_month),
        figure(o.usd_per_mtok_blended, ".2f"),
        figure(o.ttft_ms_p95, ",.0f"),
        figure(o.tpot_ms_p95, ",.1f"),
        figure(o.tokens_per_s_per_accelerator, ",.0f"),
    )


def figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
