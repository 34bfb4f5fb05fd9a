"""The one place where numbers become text: three significant digits, the unit beside them, a dash for unknown."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime

from django import template
from django.utils import timezone

from advisor.result import Option

register = template.Library()
UNKNOWN = "–"
WARN_DAYS, STALE_DAYS = 30, 90
BASES = {
    "measured": "measured on this chip",
    "relative": "borrowed from a relative",
    "datasheet": "datasheet alone",
}


def number(value: object) -> float | None:
    """`value` as a finite float, or None when it is not one."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


@register.filter
def sig(value: object, digits: int = 3) -> str:
    """Three significant digits, thousands separated: 1.90, 14.0, 10,200."""
    found = number(value)
    if found is None:
        return UNKNOWN
    if found == 0:
        return "0"
    rounded = float(f"{found:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 9)}f}"


@register.filter
def given(value: object) -> str:
    """A figure that somebody chose: whole numbers in full, others to three digits: 4, 0.25, 1,000, 0.667."""
    found = number(value)
    if found is None:
        return UNKNOWN
    digits = 10 if found.is_integer() else max(3, len(str(int(abs(found)))))
    return f"{float(f'{found:.{digits}g}'):,.10g}"


def with_unit(value: object, unit: str) -> str:
    text = sig(value)
    return text if text == UNKNOWN else f"{text}\u00a0{unit}"


@register.filter
def usd(value: object) -> str:
    text = sig(value)
    return text if text == UNKNOWN else f"-${text[1:]}" if text.startswith("-") else f"${text}"


@register.filter
def usd_cents(value: object) -> str:
    """Dollars to the cent, as a bill prints them."""
    found = number(value)
    return UNKNOWN if found is None else f"-${-found:,.2f}" if found < 0 else f"${found:,.2f}"


@register.filter
def ms(value: object) -> str:
    """Milliseconds; seconds from ten of them."""
    found = number(value)
    return with_unit(found / 1000, "s") if found is not None and abs(found) >= 10_000 else with_unit(found, "ms")


@register.filter
def duration(value: object) -> str:
    """Seconds as µs, ms or s, whichever reads best."""
    found = number(value)
    if found is None:
        return UNKNOWN
    scale, unit = (1e6, "µs") if abs(found) < 1e-3 else (1e3, "ms") if abs(found) < 1 else (1, "s")
    return with_unit(found * scale, unit)


@register.filter
def per_second(value: object) -> str:
    return with_unit(value, "/s")


@register.filter
def tokens_per_s(value: object) -> str:
    return with_unit(value, "tokens/s")


@register.filter
def gib(value: object) -> str:
    return with_unit(value, "GiB")


@register.filter
def watts(value: object) -> str:
    found = number(value)
    return with_unit(found / 1000, "kW") if found is not None and abs(found) >= 1000 else with_unit(found, "W")


@register.filter
def percent(value: object) -> str:
    """A fraction as per cent; traces as less than a tenth of one."""
    found = number(value)
    if found is not None and 0 < found < 0.001:
        return "<\u00a00.1\u00a0%"
    return UNKNOWN if found is None else with_unit(found * 100, "%")


@register.filter
def percent_beside(value: object, other: object) -> str:
    """A fraction as per cent, with as many digits as tell it from the one it is compared with: 15.02 beside 15.0."""
    found, against = number(value), number(other)
    if found is None or against is None or found == against or percent(value) != percent(other):
        return percent(value)
    digits = next((n for n in range(4, 8) if sig(found * 100, n) != sig(against * 100, n)), 7)
    return f"{sig(found * 100, digits)}\u00a0%"


@register.filter
def si(value: object) -> str:
    """A large count with its prefix: 8.4 T, 70.6 G."""
    found = number(value)
    if found is None:
        return UNKNOWN
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(found) >= factor:
            return f"{sig(found / factor)}\u00a0{prefix}"
    return sig(found)


@register.filter
def plain(value: object) -> str:
    """A figure whose unit stands beside it, or text as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return sig(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{words(key)} {plain(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return UNKNOWN if value in (None, "") else str(value)


@register.filter
def words(value: object) -> str:
    """misses_slo -> misses slo."""
    return str(value).replace("_", " ")


@register.filter
def sentence(text: object) -> str:
    """With a capital, unless the first word has one inside: vLLM keeps its name."""
    said = str(text)
    first = said.split(" ", 1)[0]
    return said if first != first.lower() else said[:1].upper() + said[1:]


@register.simple_tag
def low_high(option: Option, metric: str, kind: str = "plain") -> str:
    """The 90 % interval of a metric as low–high, or nothing when there is none."""
    pair = option.interval.of(metric)
    if not pair or len(pair) != 2 or None in pair:
        return ""
    show = {"usd": usd, "ms": ms, "tokens_per_s": tokens_per_s}.get(kind, sig)
    return f"{bare(show(pair[0]))}–{bare(show(pair[1]))}"


def bare(text: str) -> str:
    """The number without its unit: the figure above already has it (seconds keep theirs)."""
    return text if text.endswith("\u00a0s") else text.split("\u00a0")[0]


@register.filter
def basis(value: object) -> str:
    """What a figure rests on, in words."""
    return BASES.get(str(value), UNKNOWN)


def day(value: object) -> date | None:
    """A date from a date or ISO text."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        return None


@register.filter
def age(value: object) -> str:
    """fresh | ageing (over 30 days) | stale (over 90) | unknown: how old a price date is."""
    found = day(value)
    if found is None:
        return "unknown"
    days = (timezone.localdate() - found).days
    return "stale" if days > STALE_DAYS else "ageing" if days > WARN_DAYS else "fresh"


@register.filter
def age_days(value: object) -> str:
    found = day(value)
    return UNKNOWN if found is None else f"{(timezone.localdate() - found).days:d}"
