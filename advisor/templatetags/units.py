"""Formats numbers for people: three significant digits with a unit, a dash for unknown.

All numbers, dates and amounts of pages are written here, with the separators of the page's language and in the
reader's currency. Outside pages both are the defaults: English and USD.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime

from django import template
from django.utils import formats
from django.utils.translation import get_language, gettext

from advisor.engine.terms import amount_digits, cents_digits
from advisor.result import Option
from catalog import clock
from catalog.pricing import reader
from catalog.texts import localized

register = template.Library()
UNKNOWN = "–"
WARN_DAYS, STALE_DAYS = 30, 90
MAX_TYPED = 100  # characters of a number; longer texts are none
WORDS = {
    "misses_slo": "misses SLO",
    "lock_in": "vendor lock-in",
    "near_lossless": "near-lossless",
    "on_demand": "on demand",
    "spot": "spot",
    "reserved_1y": "reserved 1y",
    "reserved_3y": "reserved 3y",
    "capacity_block": "capacity block",
    "purchase": "purchase",
    "owned": "owned",
    "rent": "rent",
    "own": "own",
    "serving": "serving",
    "embedding": "embedding",
    "batch": "batch",
    "training": "training",
    "finetuning": "finetuning",
    "portfolio": "portfolio",
}
BASES = {
    "published, not estimated": "published, not estimated",
    "measured": "measured on this chip",
    "relative": "extrapolated from a related GPU",
    "datasheet": "from the datasheet only",
}
OBJECTIVES = {
    "cost": "cost",
    "latency": "latency",
    "throughput": "throughput",
    "energy": "energy",
    "carbon": "carbon",
    "balanced": "balanced",
}
STATES = {
    "queued": "queued",
    "running": "running",
    "done": "done",
    "failed": "failed",
    "cancelled": "canceled",
}
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "CNY": "CN¥", "INR": "₹", "KRW": "₩"}
SYMBOLS_HERE = {"zh": {"USD": "US$", "CNY": "¥", "JPY": "JP¥"}}  # in some languages; other currencies: their code
SYMBOL_AFTER = ("de",)  # languages that write 12,50 €
COUNTED = {  # large numbers in words
    "en": ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")),
    "de": ((1e12, "Bio."), (1e9, "Mrd."), (1e6, "Mio.")),
    "zh": ((1e12, "万亿"), (1e8, "亿"), (1e4, "万")),
}


def language() -> str:
    """The language of the page without its variant: en, de, zh."""
    return (get_language() or "en").partition("-")[0]


def decimal_comma() -> bool:
    return formats.get_format("DECIMAL_SEPARATOR", get_language()) == ","


def typed_number(text: str) -> str:
    """What a reader typed, with a decimal point: 0,5 as 0.5 and 1.234,5 as 1234.5 in German. Other text as it is.

    A decimal point is understood in every language. Raises ValueError for 1.234 and 1,234 in a language with a decimal
    comma, which could be a thousand or a fraction.
    """
    if not decimal_comma() or len(text) > MAX_TYPED:
        return text
    number = text.strip()
    size = number[-1:] if number[-1:] in tuple("TtBbMmKk") else ""
    number = number.removesuffix(size).strip() if size else number
    if not re.fullmatch(r"[+-]?[\d.,_ \u00a0\u202f]*\d", number):
        return text
    if re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", number):
        values = {"text": number, "whole": re.sub("[.,]", "", number), "fraction": re.sub("[.,]", ",", number) + "0"}
        raise ValueError(
            gettext("%(text)s could mean %(whole)s or a fraction. Write %(whole)s, or %(fraction)s for the fraction.")
            % values
        )
    if re.fullmatch(r"[+-]?\d{1,3}([._ \u00a0\u202f]\d{3})+,\d+", number) or re.fullmatch(
        r"[+-]?\d{1,3}(\.\d{3}){2,}", number
    ):
        return re.sub(r"[._ \u00a0\u202f]", "", number).replace(",", ".") + size
    return number.replace(",", ".") + size if re.fullmatch(r"[+-]?\d+,\d+", number) else text


def number_to_type(text: str) -> str:
    """A number such as 0.5 as a field shows it, 0,5 in German; `typed_number` reads it back."""
    if not decimal_comma() or not re.fullmatch(r"[+-]?\d+\.\d+", text):
        return text
    return text.replace(".", ",") + ("0" if re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) else "")


def percent_text(text: str) -> str:
    """A number with the percent sign: 31.4%, in German 31,4 %."""
    return f"{text}\u00a0%" if language() == "de" else f"{text}%"


def money_text(value: object, digits: Callable[[float], str]) -> str:
    """An amount in USD, in the reader's currency with its symbol: -$1.90, in German -1,90 €; a dash for unknown."""
    figure, code, here = converted(value), reader.code(), language()
    if figure is None:
        return UNKNOWN
    text, sign = localized(digits(abs(figure))), "-" if figure < 0 else ""
    symbol = SYMBOLS_HERE.get(here, {}).get(code) or SYMBOLS.get(code, code)
    if here in SYMBOL_AFTER:
        return f"{sign}{text}\u00a0{symbol}"
    return f"{sign}{symbol}{text}" if symbol != code else f"{sign}{code}\u00a0{text}"


def converted(value: object) -> float | None:
    """An amount in USD as an amount in the reader's currency."""
    figure, rate = number(value), reader.rate()
    return figure if figure is None or rate is None else figure * rate.per_usd


def number(value: object) -> float | None:
    """`value` as a finite float; None if it is not one."""
    try:
        parsed = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


@register.filter
def sig(value: object, digits: int = 3) -> str:
    """Three significant digits, thousands separated: 1.90, 14.0, 10,200."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    if figure == 0:
        return "0"
    rounded = float(f"{figure:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return localized(f"{rounded:,.{min(decimals, 9)}f}")


@register.filter
def given(value: object) -> str:
    """A figure that the user entered: integers in full, others with three digits (4, 0.25, 1,000, 0.667)."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    digits = 10 if figure.is_integer() else max(3, len(str(int(abs(figure)))))
    return localized(f"{float(f'{figure:.{digits}g}'):,.10g}")


def with_unit(value: object, unit: str) -> str:
    text = sig(value)
    return text if text == UNKNOWN else f"{text}\u00a0{unit}"


@register.filter
def dollars(value: object) -> str:
    """$1,234, $12.35, $0.00123."""
    return money_text(value, amount_digits)


@register.filter
def usd_cents(value: object) -> str:
    """To the cent: a line of a bill or of a cash flow."""
    return money_text(value, cents_digits)


@register.filter
def in_currency(text: object) -> str:
    """A title such as "USD per month" with the reader's currency: "EUR per month"."""
    return str(text).replace("USD", reader.code())


@register.filter
def ms(value: object) -> str:
    """Milliseconds; seconds from 10 s."""
    figure = number(value)
    return with_unit(figure / 1000, "s") if figure is not None and abs(figure) >= 10_000 else with_unit(figure, "ms")


@register.filter
def duration(value: object) -> str:
    """Seconds as µs, ms or s, whichever reads best."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    scale, unit = (1e6, "µs") if abs(figure) < 1e-3 else (1e3, "ms") if abs(figure) < 1 else (1, "s")
    return with_unit(figure * scale, unit)


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
    figure = number(value)
    return with_unit(figure / 1000, "kW") if figure is not None and abs(figure) >= 1000 else with_unit(figure, "W")


@register.filter
def percent(value: object) -> str:
    """A fraction as a percentage; below 0.1% as "< 0.1%"."""
    figure = number(value)
    if figure is not None and 0 < figure < 0.001:
        return f"<\u00a0{percent_text(localized('0.1'))}"
    return UNKNOWN if figure is None else percent_text(sig(figure * 100))


@register.filter
def percent_beside(value: object, other: object) -> str:
    """A fraction as a percentage, with enough digits to differ from `other`: 15.02 next to 15.0."""
    figure, against = number(value), number(other)
    if figure is None or against is None or figure == against or percent(value) != percent(other):
        return percent(value)
    digits = next((n for n in range(4, 8) if sig(figure * 100, n) != sig(against * 100, n)), 7)
    return percent_text(sig(figure * 100, digits))


@register.filter
def large(value: object) -> str:
    """A large count in words: 45.0 billion; below a million in full."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    for factor, name in COUNTED.get(language(), COUNTED["en"]):
        if abs(figure) >= factor:
            return f"{sig(figure / factor)}\u00a0{name}"
    return sig(figure)


@register.filter
def plain(value: object) -> str:
    """Any value as text, without a unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return localized(f"{value:,}")
    if isinstance(value, float):
        return sig(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{words(key)} {plain(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(plain(item) for item in value)
    return UNKNOWN if value in (None, "") else str(value)


@register.filter
def translated(text: object) -> str:
    """A text that is marked where it is written, such as the name of an example."""
    return gettext(str(text)) if text else ""


@register.filter
def state_text(state: object) -> str:
    """The state of a request."""
    return STATES.get(str(state), str(state))


@register.filter
def objective(name: object) -> str:
    """The objective of a question."""
    return OBJECTIVES.get(str(name), str(name))


@register.filter
def exact(value: object) -> str:
    """A rate with all its digits: 0.89087."""
    figure = number(value)
    return UNKNOWN if figure is None else localized(f"{figure:.8g}")


@register.filter
def words(value: object) -> str:
    """misses_slo -> misses SLO, near_lossless -> near-lossless."""
    text = str(value)
    return WORDS[text] if text in WORDS else text.replace("_", " ")


@register.filter
def sentence(text: object) -> str:
    """Starts with a capital, unless the first word contains one (vLLM)."""
    plain_text = str(text)
    first = plain_text.split(" ", 1)[0]
    return plain_text if first != first.lower() else plain_text[:1].upper() + plain_text[1:]


@register.simple_tag
def low_high(option: Option, metric: str, kind: str = "plain") -> str:
    """The 90 % interval of a metric as low–high, or nothing when there is none."""
    pair = option.interval.of(metric)
    if not pair or len(pair) != 2 or None in pair:
        return ""
    show = {"usd": dollars, "ms": ms, "tokens_per_s": tokens_per_s}.get(kind, sig)
    low, high = show(pair[0]), show(pair[1])
    return span(low, high) if kind == "usd" else f"{bare(low)}–{bare(high)}"


def span(low: str, high: str) -> str:
    """low–high; the low end without its unit where both have the same one."""
    unit = f"\u00a0{high.partition(chr(0xA0))[2]}"
    return f"{low.removesuffix(unit) if len(unit) > 1 else low}–{high}"


def bare(text: str) -> str:
    """The number without its unit, which the figure above has; seconds keep theirs."""
    return text if text.endswith("\u00a0s") else text.split("\u00a0")[0]


@register.filter
def basis(value: object) -> str:
    """The evidence for a figure, as text."""
    return str(BASES.get(str(value), UNKNOWN))


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
def date_text(value: object) -> str:
    """A date as the page's language writes it: 2026-10-02, 02.10.2026, 2026年10月2日; other text as it is."""
    figure = day(value)
    return str(value or "") if figure is None else formats.date_format(figure, "SHORT_DATE_FORMAT")


@register.filter
def age(value: object) -> str:
    """The age class of a price date: fresh, ageing (over 30 days), stale (over 90) or unknown."""
    figure = day(value)
    if figure is None:
        return "unknown"
    days = (clock.today() - figure).days
    return "stale" if days > STALE_DAYS else "ageing" if days > WARN_DAYS else "fresh"


@register.filter
def age_days(value: object) -> str:
    figure = day(value)
    return UNKNOWN if figure is None else localized(f"{(clock.today() - figure).days:,d}")
