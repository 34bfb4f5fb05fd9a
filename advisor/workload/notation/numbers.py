"""The numbers that a text can stand for: 1500, 1 500, 1,500.5, 1.500,5, 1e3."""

import re
from dataclasses import dataclass
from fractions import Fraction

MOST_CHARACTERS = 100  # longer texts are no numbers
GAP = "_'’ \u00a0\u202f"  # between groups of three digits
PLAIN = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?")
GAPPED = re.compile(rf"\d{{1,3}}(?:[{GAP}]\d{{3}})+(?:[.,]\d+)?")
ENGLISH = re.compile(r"\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}")
CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}")
EITHER = re.compile(r"([1-9]\d{0,2})([.,])(\d{3})")  # a thousand, or a fraction of three digits
DECIMAL_COMMA = re.compile(r"\d*,\d+")
GROUPED_BY_COMMA = re.compile(r"\d+,\d{3}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How the writer separates digits. `comma`: the decimal separator of the page's language is a comma.

    `listed`: commas separate values, so that a number has a decimal point and no groups.
    """

    comma: bool = False
    listed: bool = False


POINT = Style()


def readings(text: str, style: Style = POINT, coarse: bool = False) -> list[Fraction]:
    """The numbers that the text can stand for; several only for 1,500 and 1.500. Empty: it is no number.

    coarse: the quantity is counted, so that the language's separator of groups (1,500 tokens) leaves no doubt.
    """
    number = text.strip().replace("\u2212", "-")
    if len(number) > MOST_CHARACTERS:
        return []
    sign = -1 if number[:1] == "-" else 1
    found = unsigned(number[1:] if number[:1] in ("+", "-") else number, style, coarse)
    return [sign * value for value in found]


def unsigned(number: str, style: Style, coarse: bool) -> list[Fraction]:
    if either := None if style.listed else EITHER.fullmatch(number):
        thousand, part = Fraction(either[1] + either[3]), Fraction(f"{either[1]}.{either[3]}")
        groups = "." if style.comma else ","
        return [thousand] if coarse and either[2] == groups else [thousand, part]
    if PLAIN.fullmatch(number):
        return [Fraction(number.rstrip(".") if number.endswith(".") else number)]
    if style.listed:
        return []
    if GAPPED.fullmatch(number):
        return [Fraction(re.sub(f"[{GAP}]", "", number).replace(",", "."))]
    if ENGLISH.fullmatch(number):
        return [Fraction(number.replace(",", ""))]
    if CONTINENTAL.fullmatch(number):
        return [Fraction(number.replace(".", "").replace(",", "."))]
    if DECIMAL_COMMA.fullmatch(number) and (style.comma or number[0] == "0" or not GROUPED_BY_COMMA.fullmatch(number)):
        return [Fraction(number.replace(",", ".").rjust(1, "0"))]
    return []


def written(value: Fraction, style: Style = POINT) -> str:
    """The number without groups; `readings` reads it back as this number alone."""
    if value.denominator == 1:
        return str(value.numerator)
    text = decimal_text(value)
    whole, point, digits = text.partition(".")
    if point and len(digits) == 3 and EITHER.fullmatch(f"{whole.lstrip('-')}.{digits}") and not style.listed:
        text += "0"
    return text.replace(".", ",") if style.comma and not style.listed and "e" not in text else text


def decimal_text(value: Fraction) -> str:
    """All digits of a terminating decimal; else the shortest text of the nearest float."""
    for digits in range(1, 25):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            text = f"{abs(scaled.numerator):0{digits + 1}d}"
            return f"{'-' if value < 0 else ''}{text[:-digits]}.{text[-digits:]}"
    return repr(float(value))
