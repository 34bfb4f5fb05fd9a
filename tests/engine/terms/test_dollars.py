"""Dollars are written by one rule: never 0 for what is not 0, never smaller for more, near the amount."""

import ast
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.engine.terms.amounts import amount_digits, cents_digits, exact_digits, exact_text, tick_text, usd_text

ROOT = Path(__file__).resolve().parents[3]
DRAW = random.Random(32)
EDGES = [
    edge * (1 + off)
    for edge in (0.001, 0.01, 0.0995, 0.1, 0.5, 0.995, 1.0, 9.995, 10.0, 99.995, 99.5, 100.0, 999.5, 1000.0, 82_000.0)
    for off in (-1e-3, -1e-5, -1e-9, 0.0, 1e-9, 1e-5, 1e-3)
]
AMOUNTS = sorted([*(10 ** DRAW.uniform(-9, 9) for _ in range(4000)), *EDGES])
FORMS = (amount_digits, cents_digits, exact_digits)


def read(text: str) -> float:
    return float(text.replace(",", "").replace("$", ""))


@pytest.mark.parametrize("form", FORMS)
def test_no_amount_is_rounded_to_nothing_or_falls_where_it_grows(form: Callable[[float], str]) -> None:
    shown = [read(form(amount)) for amount in AMOUNTS]
    assert shown == sorted(shown) and min(shown) > 0
    assert all(read(form(-amount)) == -value for amount, value in zip(AMOUNTS[::50], shown[::50], strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_an_amount_is_near_what_is_written(form: Callable[[float], str]) -> None:
    for amount in AMOUNTS:
        assert abs(read(form(amount)) - amount) <= max(0.0051 * amount, (form is cents_digits) * 0.0051), amount
        assert form is not exact_digits or abs(read(form(amount)) - amount) <= max(0.0051, amount * 6e-5)


def test_the_digits_are_those_documented() -> None:
    for amount in AMOUNTS:
        whole, _, decimals = amount_digits(amount).partition(".")
        if read(whole) >= 100:
            assert not decimals
        elif read(whole) >= 1:
            assert len(decimals) == 2
        else:
            assert 2 <= len(decimals) and len(decimals.lstrip("0")) <= 3


@pytest.mark.parametrize("usd", [2.5, 0.0453, 0.000001, 98.32, 12.2931, 32_500, 12_345.67, 3.0])
def test_a_list_price_keeps_all_its_digits(usd: float) -> None:
    assert read(exact_text(usd)) == usd


@pytest.mark.parametrize(
    ("usd", "text"),
    [(81_999.6, "$82,000"), (0.0453, "$0.0453"), (99.5, "$99.50"), (99.996, "$100"), (0.99996, "$1.00"), (4.4, "$4.40"),
     (0.0012345, "$0.00123"), (0.5, "$0.50"), (-1234.0, "-$1,234"), (0.0, "$0"), (math.inf, "an unknown price")],
)  # fmt: skip
def test_examples(usd: float, text: str) -> None:
    assert usd_text(usd) == text


def test_further_digits_tell_near_amounts_apart() -> None:
    assert [usd_text(1234.4, more) for more in (0, 1)] == ["$1,234", "$1,234.4"]
    assert [usd_text(0.0453, more) for more in (0, 1)] == ["$0.0453", "$0.0453"]
    assert usd_text(0.04532, 1) == "$0.04532"


@pytest.mark.parametrize(("usd", "text"), [(0.5, "$0.5"), (70, "$70"), (2500, "$2,500"), (15e4, "$150k"), (2e6, "$2M")])
def test_ticks_are_short(usd: float, text: str) -> None:
    assert tick_text(usd) == text


# --- nothing else writes dollars ------------------------------------------------------------------------------------

NO_MONEY = {  # `$` before a value that is no amount: placeholders, shell variables and cells of a workbook
    "advisor/engine/terms/command_template.py",
    "advisor/report/documents/sheet.py",
    "catalog/framework_files.py",
}
AMOUNT = re.compile(r"(?!.*(\bper_usd\b|usd\w* / \S*usd)).*usd")  # neither an exchange rate nor a ratio
NUMBER = re.compile(r"^,?\.?\d*[fg]$")


def inline(tree: ast.AST) -> list[int]:
    """Lines of formatted texts that write `$` before a value, or round what is named after USD."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        before: ast.expr | None = None
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                signed = isinstance(before, ast.Constant) and str(before.value).endswith("$")
                spec = ast.unparse(part.format_spec)[2:-1] if part.format_spec else ""
                data = len(node.values) == 1 and "," not in spec  # a cell of a file
                if signed or (NUMBER.match(spec) and not data and AMOUNT.match(ast.unparse(part.value))):
                    found.append(part.lineno)
            before = part
    return found


def test_no_dollar_is_written_elsewhere() -> None:
    wrong = [
        f"{name}:{line}"
        for package in ("advisor", "catalog", "probes")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in NO_MONEY | {"advisor/engine/terms/amounts.py"}
        for line in inline(ast.parse(path.read_text()))
    ]
    assert wrong == []


def test_templates_round_no_dollar() -> None:
    rounded = re.compile(r"\{\{[^}|]*(?<!per_)usd[^}|]*\|(floatformat|intcomma|sig|plain)\b|\$\{\{")
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for package in ("advisor", "catalog", "probes")
        for path in sorted((ROOT / package).rglob("*.html"))
        for match in rounded.finditer(path.read_text())
    ]
    assert wrong == []


def test_an_inline_dollar_is_found() -> None:
    assert inline(ast.parse('f"${x:,.0f} a month"')) == inline(ast.parse('f"{option.usd_per_month:,.2f}"')) == [1]
    assert inline(ast.parse('f"{usd_text(x)} a month, {a.usd / b.usd:.2g} times as much, {saving_fraction:.2f}"')) == []
