"""One grammar of number and unit, and one table: which kind of quantity a field holds, by the end of its name.

`6k`, `40%`, `2 s`, `$40k`, `500/min`, `2 x 8`: `read` gives the number in the field's unit. A text with two readings
that the field could hold is refused with both; a text with none stays as typed, for validation to report.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache

from advisor.workload.notation.numbers import MOST_CHARACTERS, POINT, Style, readings, written
from advisor.workload.text import either

MULTIPLIERS = {
    word: Fraction(10**power)
    for power, words in {
        3: "k thousand",
        6: "m mn mm mio million millions",
        9: "b bn g mrd billion billions",
        12: "t tn trillion trillions",
    }.items()
    for word in words.split()
}
SECONDS = {  # month: a twelfth of 365 days, the 730 hours of a monthly bill
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "days": Fraction(86400),
    "weeks": Fraction(7 * 86400),
    "months": Fraction(730 * 3600),
    "years": Fraction(8760 * 3600),
}
TIMES = {
    "ns": "ns nanosecond nanoseconds",
    "us": "us µs μs microsecond microseconds",
    "ms": "ms msec msecs millisecond milliseconds",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "days": "d day days",
    "weeks": "w wk wks week weeks",
    "months": "mo month months",
    "years": "y yr yrs year years",
}
WATTS = {"w watt watts": Fraction(1), "kw kilowatt kilowatts": Fraction(1000), "mw megawatt megawatts": Fraction(10**6)}
BYTES = {
    name: Fraction(size)
    for power, (decimal, binary) in enumerate((("kb", "kib"), ("mb", "mib"), ("gb", "gib"), ("tb", "tib")), 1)
    for name, size in ((decimal, 1000**power), (binary, 1024**power))
} | {"b bytes byte": Fraction(1)}
DOLLARS = ("$", "us$", "usd", "dollar", "dollars")
FOREIGN = {"€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW"} | {
    code.lower(): code for code in "EUR GBP JPY CNY INR KRW CHF CAD AUD SGD SEK NOK DKK PLN".split()
}
NOUNS = {  # what people write after a number of a field that counts them
    "tokens": "token tokens tok toks",
    "requests": "request requests req reqs",
    "accelerators": "accelerator accelerators gpu gpus chip chips card cards",
    "px": "px pixel pixels",
    "users": "user users",
    "words": "word words",
    "conversations": "conversation conversations chats",
}
RATES = {"rps": "/s", "qps": "/s", "rpm": "/min", "rph": "/h", "wpm": "/min"}
PRODUCT = re.compile(r"(\d{1,6})\s*[x×*]\s*(\d{1,6})")
PARTS = re.compile(
    r"(?P<before>[^\d.,+\-\u2212]*)"
    r"(?P<number>[+\-\u2212]?(?:\d[\d.,_'’ \u00a0\u202f]*|[.,]\d+)(?:[eE][+-]?\d{1,3})?)"
    r"(?P<after>\D.*|)",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """What a number of a field means: kind, the unit of a plain number, other units in it, and the field's range."""

    kind: str
    unit: str = ""
    units: Mapping[str, Fraction]
    shown: Mapping[str, str]  # unit as typed -> as a reading is written
    low: float = float("-inf")
    high: float = float("inf")
    above_low: bool = False  # low itself is outside
    whole: bool = False
    coarse: bool = False  # counted, or an amount of money: 1,500 is no fraction
    examples: str = ""

    def holds(self, value: Fraction) -> bool:
        inside = self.low < value if self.above_low else self.low <= value
        return inside and value <= self.high and (not self.whole or value.denominator == 1)


class Unclear(ValueError):
    """A text that a field cannot take: it has several readings, or another currency. `ways`: what to write."""

    def __init__(self, text: str, ways: tuple[str, ...], currency: str = "") -> None:
        self.text, self.ways, self.currency = text, ways, currency
        other = f'"{text}" is in {currency}; amounts are in US dollars: write {either(ways)}'
        super().__init__(other if currency else f'"{text}" could mean {either(ways)}; write one of these')


# --- the table --------------------------------------------------------------------------------------------------

# The end of a field's path, without statistics such as p95 -> its kind of quantity and its unit; the first that fits.
ENDINGS: tuple[tuple[str, str, str], ...] = (
    (r"(^|_)usd(_per_(?P<per>\w+))?$|usd_per_(?P<each>\w+)$", "money", "USD"),
    (r"fraction|(hit|discount)_rate$|confidence$|prefixes_share$|change_per_year$|residual_value|^acceptance", "share", ""),
    (r"(^|_)ratios?$|seasonality$|load_curve$|^(tco_scenarios|weights)_|price_paths_\w+_(low|high)$|^pue",
     "ratio", ""),
    (r"kgco2e_per_kwh", "carbon", "kg/kWh"),
    (r"tokens_per_s(_per_user)?$", "rate", "tokens/s"),
    (r"requests_per_s$|^rate$", "rate", "requests/s"),
    (r"conversations_per_hour$", "rate", "conversations/h"),
    (r"words_per_minute$", "rate", "words/min"),
    (r"(?<!_per)_(?P<time>us|ms|s|hours|days|months|years)(_(workstation|computer))?$", "duration", ""),
    (r"(?<!per_)(?<!bytes_)(tokens|sequence_length|isl|osl)$", "tokens", "tokens"),
    (r"_px$", "count", "px"),
    (r"(^|_)(max_kw|kw_per_rack|host_kw\w*)$", "power", "kW"),
    (r"watts$", "power", "W"),
    (r"_(?P<bytes>gb|gib)$", "memory", ""),
    (r"batch_requests$", "count", "requests"),
    (r"users_active$", "count", "users"),
    (r"^(owned|inventory|count)$|max_accelerators$", "count", "accelerators"),
)  # fmt: skip
BASES = {"hours": "h"} | {name: name for name in ("us", "ms", "s", "days", "months", "years")}
STATISTIC = re.compile(r"_(mean|peak|p95|p99)$")
EXAMPLES = {
    "money": "$40k, 40k USD or 40000",
    "share": "40% or 0.4",
    "ratio": "0.9 or 90%",
    "carbon": "0.38 or 380 g/kWh",
    "tokens": "6000, 6k or 1.5M",
    "count": "1500 or 1.5k",
    "memory": "80 GB",
    "number": "a number such as 1.5",
}


@lru_cache(4096)
def quantity_of(path: str) -> Quantity:
    """The quantity of the field at a path of the workload file, or of an option or assumption of this name."""
    name = re.sub(r"\[\d*\]|\W", "_", path).strip("_").replace("__", "_")
    bare = STATISTIC.sub("", name)
    for pattern, kind, unit in ENDINGS:
        if found := re.search(pattern, bare) or re.search(pattern, bare.removeprefix("tco_")):
            return built(kind, unit, found.groupdict())
    return built("number", "", {})


def built(kind: str, unit: str, groups: Mapping[str, str | None]) -> Quantity:
    if kind == "duration":
        return duration(BASES[str(groups["time"])])
    if kind == "money":
        return money(groups.get("per") or groups.get("each") or "")
    if kind == "rate":
        return rate(unit)
    units, coarse = {"": Fraction(1)}, False
    if kind in ("share", "ratio"):
        units |= dict.fromkeys(("%", "percent", "pct", "prozent"), Fraction(1, 100))
        units |= (
            {}
            if kind == "ratio"
            else {f"{each}{tail}".strip(): size for each, size in units.items() for tail in YEARLY}
        )
        units |= {"x": Fraction(1), "×": Fraction(1)} if kind == "ratio" else {}
    elif kind == "carbon":
        units |= {
            "kg/kwh": Fraction(1),
            "kgco2e/kwh": Fraction(1),
            "g/kwh": Fraction(1, 1000),
            "gco2e/kwh": Fraction(1, 1000),
        }
    elif kind == "power":
        one = WATTS["kw kilowatt kilowatts"] if unit == "kW" else Fraction(1)
        units |= {word: size / one for words, size in WATTS.items() for word in words.split()}
    elif kind == "memory":
        one = BYTES[str(groups["bytes"])]
        units |= {word: size / one for words, size in BYTES.items() for word in words.split()}
    elif kind in ("tokens", "count"):
        units |= dict.fromkeys(NOUNS.get(unit, unit).split(), Fraction(1))
        coarse = True
    examples = {"kW": "200 kW or 0.2 MW", "W": "575 W or 0.575 kW"}.get(unit, "") or EXAMPLES[kind]
    return Quantity(kind=kind, unit=unit, units=units, shown={}, coarse=coarse, examples=examples)


YEARLY = ("/year", "/yr", "/y")
PER: dict[str, dict[str, Fraction | int]] = {
       "month": {"month": 1, "mo": 1, "year": Fraction(1, 12), "yr": Fraction(1, 12), "hour": 730, "h": 730},
       "accelerator_hour": {"h": 1, "hr": 1, "hour": 1, "gpu-hour": 1, "accelerator-hour": 1, "gpu-h": 1},
       "year": {"year": 1, "yr": 1, "month": 12}}  # fmt: skip


@cache
def duration(base: str) -> Quantity:
    one = SECONDS[base]
    units = {word: SECONDS[unit] / one for unit, words in TIMES.items() for word in words.split()}
    shown = {word: unit for unit, words in TIMES.items() for word in words.split()} | {"m": "min"}
    examples = {"ms": "30 ms or 2 s", "s": "30 s or 2 min", "h": "12 h or 2 days", "days": "30 days or 2 weeks",
                "months": "36 months or 3 years", "years": "5 years", "us": "50 us"}[base]  # fmt: skip
    units |= {"": Fraction(1), "m": SECONDS["min"] / one}
    return Quantity(kind="duration", unit=base, units=units, shown=shown,
                    examples=f"{examples}; a plain number is in {base}")  # fmt: skip


@cache
def money(per: str) -> Quantity:
    tails = {"": Fraction(1), f"/{per.replace('_', '-')}": Fraction(1)} if per else {"": Fraction(1)}
    tails |= {f"/{word}": Fraction(size) for word, size in PER.get(per, {}).items()}
    units = {f"{currency}{tail}": size for currency in ("", *DOLLARS) for tail, size in tails.items()}
    small = per not in ("", "month", "year")
    examples = "$1.5 or 1.5 USD" if small else EXAMPLES["money"]
    return Quantity(kind="money", unit="USD", units=units, shown={}, coarse=not small, examples=examples)


@cache
def rate(unit: str) -> Quantity:
    noun, _, base = unit.partition("/")
    one = SECONDS[base]
    units = {"": Fraction(1)}
    for each, words in TIMES.items():
        for time in words.split():
            for what in ("", *NOUNS[noun].split()):
                units[f"{what}/{time}"] = one / SECONDS[each]
    units |= {short: units[tail] for short, tail in RATES.items() if noun in ("requests", "words")}
    units |= {short: units["/s"] for short in ("r/s", "t/s", "tps") if short[0] == noun[0]}
    other = "min" if base == "s" else "s" if base == "min" else "day"
    return Quantity(kind="rate", unit=unit, units=units, shown={}, examples=f"6, 6/{base} or 360/{other}")


# --- reading ----------------------------------------------------------------------------------------------------


def read(text: str, quantity: Quantity, style: Style = POINT) -> float | int | None:
    """The number in the field's unit; None where the text is no such quantity. Unclear: it has two readings."""
    found = meanings(text, quantity, style)
    able = {value: way for value, way in found.items() if quantity.holds(value)}
    shares = quantity.kind == "share" and len(found) > 1  # 5 is no 500 % by mistake: always ask
    if len(able) > 1 or shares:
        ways = tuple(dict.fromkeys((found if shares else able).values()))
        raise Unclear(text.strip(), ways)
    values = list(able or found)
    return as_number(values[0]) if values else None


def meanings(text: str, quantity: Quantity, style: Style) -> dict[Fraction, str]:
    """Each value that the text could stand for, with an unambiguous way to write it."""
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        return {}
    if quantity.kind == "count" and (product := PRODUCT.fullmatch(text)):
        return {Fraction(int(product[1]) * int(product[2])): text}
    parts = PARTS.fullmatch(text)
    if not parts:
        return {}
    before, after = tidy(parts["before"]), tidy(parts["after"])
    if quantity.kind == "money":
        check_currency(text, before, after)
        if before in DOLLARS or before[:-1] in DOLLARS and before[-1:] == "-":
            before = ""
    if before:
        return {}
    found: dict[Fraction, str] = {}
    for number in readings(parts["number"], style, quantity.coarse):
        for size, unit in scales(after, quantity):
            value = number * size
            if quantity.kind == "share" and unit == "" and abs(number) >= 1:
                found |= {number / 100: f"{written(number, style)}%", number: f"{written(number * 100, style)}%"}
                continue
            found.setdefault(value, f"{written(number, style)}{unit}")
    return found


def scales(after: str, quantity: Quantity) -> list[tuple[Fraction, str]]:
    """(value of one, how the unit is written) for each meaning of what follows the number."""
    found = []
    if after in quantity.units:
        unit = quantity.shown.get(after, after)
        found.append((quantity.units[after], f" {unit}" if unit[:1].isalpha() else unit))
        if after == "m" and quantity.unit in ("days", "months", "years"):
            found.append((quantity.units["months"], " months"))
    if quantity.kind in ("share", "ratio", "power", "memory", "carbon"):
        return found
    word, gap, rest = after.partition(" ")
    glued = next((each for each in sorted(MULTIPLIERS, key=len, reverse=True) if after.startswith(each)), "")
    if word not in MULTIPLIERS and not found and glued:
        word, rest = glued, after[len(glued) :].strip()
    if word in MULTIPLIERS and rest in quantity.units:
        unit = rest or (quantity.unit if quantity.kind == "duration" else "")
        found.append((MULTIPLIERS[word] * quantity.units[rest], f" million {unit}".rstrip() if word == "m" and found
                      else f"{word.upper() if len(word) == 1 and word != 'k' else word} {rest}".rstrip()))  # fmt: skip
    return found


def tidy(text: str) -> str:
    """A unit in lower case, with a slash for per: "USD a month" as usd/month."""
    lower = " ".join(text.lower().replace("p.a.", "/year").split())
    return re.sub(r"\s*(?:/|(?<![a-z])(?:per|an?|each)(?![a-z]))\s*", "/", lower)


def check_currency(text: str, before: str, after: str) -> None:
    words = {*re.findall(r"[a-z]+|[€£¥₹₩]", f"{before} {after}")}
    foreign = sorted(FOREIGN[word] for word in words if word in FOREIGN)
    if foreign:
        raise Unclear(text, ("$40k", "40000 USD"), foreign[0])


def as_number(value: Fraction) -> float | int:
    if value.denominator == 1 and abs(value.numerator) < 10**18:
        return value.numerator
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# --- showing ----------------------------------------------------------------------------------------------------


def text_of(value: float | int, quantity: Quantity, style: Style = POINT) -> str:
    """A value as its field shows it, which `read` reads back: 40% for a share, plain numbers otherwise."""
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    texts = [f"{written(exact * 100, style)}%"] if quantity.kind == "share" and exact else []
    texts += [written(exact, style)] if 1e-6 <= abs(value) < 1e16 or not value else []
    return next((text for text in texts if reads_back(text, value, quantity, style)), plain(value))


def reads_back(text: str, value: float, quantity: Quantity, style: Style = POINT) -> bool:
    try:
        return read(text, quantity, style) == value
    except Unclear:
        return False


def plain(value: float | int) -> str:
    short = f"{value:.15g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def within(quantity: Quantity, low: float, high: float, *, above_low: bool = False, whole: bool = False) -> Quantity:
    """The quantity in a field of this range."""
    return replace(quantity, low=low, high=high, above_low=above_low, whole=whole, coarse=quantity.coarse or whole)
