"""One grammar of number and unit: every spelling of a quantity is read as the quantity, and doubt is an error."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.workload import Deployment, Spec, TrainingRun, WorkloadError, parse, with_numbers
from advisor.workload.notation.machines import machines
from advisor.workload.notation.numbers import Style, readings, written
from advisor.workload.notation.quantities import (
    ENDINGS,
    MULTIPLIERS,
    Quantity,
    Unclear,
    quantity_of,
    read,
    reads_back,
    text_of,
    within,
)
from advisor.workload.notation.sections import annotation_of, annotations, number_in, parts, quantity_at
from tests.workload.test_workload_refused import GOOD

TTFT, RATE = quantity_at(Spec, "slo.ttft_ms_p95"), quantity_at(Spec, "traffic.requests_per_s.mean")
TOKENS, BUDGET = quantity_at(Spec, "traffic.input_tokens.mean"), quantity_at(Spec, "constraints.max_usd_per_month")
SHARE, GROWTH = quantity_at(Spec, "tco.discount_rate"), quantity_at(Spec, "traffic.growth_fraction_per_year")
DEADLINE, HORIZON = quantity_at(Spec, "training.deadline_days"), quantity_at(Spec, "tco.horizon_months")
PER_HOUR, POWER = quantity_of("usd_per_accelerator_hour"), quantity_of("constraints.site.max_kw")
WHOLE = quantity_at(Spec, "constraints.max_accelerators")


@pytest.mark.parametrize(("quantity", "text", "value"), [
    (SHARE, "40%", 0.4), (SHARE, "0.4", 0.4), (SHARE, "12,5 %", 0.125), (GROWTH, "150% a year", 1.5), (SHARE, "0", 0),
    (GROWTH, "8 % p.a.", 0.08),
    (TOKENS, "6k", 6000), (TOKENS, "1.5M", 1_500_000), (TOKENS, "1.5M tokens", 1_500_000), (TOKENS, "2m", 2_000_000),
    (TOKENS, "6,000", 6000), (TOKENS, "6 000", 6000), (TOKENS, "2 million", 2_000_000), (TOKENS, "1,234.5", 1234.5),
    (TTFT, "2s", 2000), (TTFT, "30 ms", 30), (TTFT, "30", 30), (TTFT, "0.5 min", 30_000), (TTFT, "1,5 s", 1500),
    (BUDGET, "$40k", 40_000), (BUDGET, "40k USD", 40_000), (BUDGET, "USD 40,000", 40_000), (BUDGET, "40k$", 40_000),
    (BUDGET, "$480k per year", 40_000), (BUDGET, "$40k/month", 40_000), (PER_HOUR, "$2.10/h", 2.1),
    (PER_HOUR, "$2.10 per GPU-hour", 2.1), (RATE, "500/min", 500 / 60), (RATE, "6 requests per second", 6),
    (RATE, "1M a day", 1e6 / 86400), (RATE, "6 rps", 6), (DEADLINE, "2 weeks", 14), (HORIZON, "3 years", 36),
    (HORIZON, "36 months", 36), (POWER, "0.2 MW", 200), (WHOLE, "2 x 8", 16), (WHOLE, "64 GPUs", 64),
])  # fmt: skip
def test_a_quantity_is_read_in_the_unit_of_its_field(quantity: Quantity, text: str, value: float) -> None:
    assert read(text, quantity) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(("quantity", "text", "ways"), [
    (RATE, "1,500", ("1500", "1.5")), (RATE, "1.500", ("1500", "1.5")), (TTFT, "1,500 ms", ("1500 ms", "1.5 ms")),
    (TOKENS, "1.500", ("1500", "1.5")), (SHARE, "5", ("5%", "500%")), (SHARE, "1", ("1%", "100%")),
    (GROWTH, "-20", ("-20%", "-2000%")), (TTFT, "2m", ("2 min", "2 million ms")), (WHOLE, "2.000", ("2000", "2")),
    (DEADLINE, "2m", ("2 min", "2 months")), (BUDGET, "€40k", ("$40k", "40000 USD")),
    (PER_HOUR, "40 EUR", ("$40k", "40000 USD")),
])  # fmt: skip
def test_a_text_with_two_readings_is_refused_with_both(quantity: Quantity, text: str, ways: tuple[str, ...]) -> None:
    with pytest.raises(Unclear) as caught:
        read(text, quantity)
    assert caught.value.ways == ways and text in str(caught.value)
    if not caught.value.currency:  # each way is clear, and they differ
        assert len({read(way, quantity) for way in ways}) == len(ways)


@pytest.mark.parametrize(("quantity", "text"), [
    (TTFT, "30 kg"), (TTFT, "fast"), (TTFT, "1 2 ms"), (TOKENS, "$5"), (BUDGET, "40 s"), (SHARE, "5 ms"),
    (RATE, "5 users"), (WHOLE, "1,2,3"), (WHOLE, ""), (TTFT, "9" * 200), (TTFT, "1.2.3"), (RATE, "1234,567"),
])  # fmt: skip
def test_what_is_no_such_quantity_has_no_reading(quantity: Quantity, text: str) -> None:
    assert read(text, quantity) is None


def test_one_reading_that_the_field_could_hold_is_no_doubt() -> None:
    ratio = quantity_at(Spec, "price_ratios")
    assert ratio is not None and read("1.125", ratio) == 1.125  # 1125 is above the highest ratio
    assert read("2m", HORIZON) == 2  # months: two minutes or two million months are no horizon
    assert read("1.500", WHOLE) == 1500  # one and a half accelerators are none


# --- every spelling ---------------------------------------------------------------------------------------------

DIGITS = st.integers(0, 999_999).map(lambda n: Fraction(n, 100))
NUMBERS = {
    "point": lambda n: written(n),
    "comma": lambda n: written(n, Style(comma=True)),
    "spaces": lambda n: f"{n.numerator // n.denominator:,}".replace(",", " ") if n.denominator == 1 else written(n),
    "scientific": lambda n: f"{float(n):.12e}",
}
SAMPLES = (TTFT, RATE, TOKENS, BUDGET, GROWTH, DEADLINE, PER_HOUR, POWER)


@given(st.sampled_from(SAMPLES), DIGITS, st.sampled_from(sorted(NUMBERS)), st.data(), st.sampled_from(["", " "]))
def test_a_quantity_in_any_of_its_spellings_is_that_quantity(
    quantity: Quantity, number: Fraction, spelled: str, data: st.DataObject, gap: str
) -> None:
    unit = data.draw(st.sampled_from(sorted(set(quantity.units) - {"m"})))
    text = f"{NUMBERS[spelled](number)}{gap}{unit}"
    expected = number * quantity.units[unit]
    if quantity.kind == "share" and unit == "" and number >= 1:
        with pytest.raises(Unclear):
            read(text, quantity)
        return
    found = read(text, quantity)
    assert found is not None and found == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


@given(st.sampled_from([TOKENS, BUDGET, RATE, WHOLE]), st.integers(1, 99), st.sampled_from(sorted(MULTIPLIERS)))
def test_a_multiplier_multiplies(quantity: Quantity, number: int, word: str) -> None:
    wide = within(quantity, 0, 1e18, whole=quantity.whole)
    for text in (f"{number}{word}", f"{number} {word}", f"{number}{word.upper()}"):
        assert read(text, wide) == number * MULTIPLIERS[word]


@given(st.floats(1e-9, 1e15), st.sampled_from(SAMPLES), st.booleans())
def test_a_value_is_shown_as_a_text_that_is_read_as_the_value(value: float, quantity: Quantity, comma: bool) -> None:
    assert reads_back(text_of(value, quantity, Style(comma=comma)), value, quantity, Style(comma=comma))


@given(st.text(max_size=40), st.sampled_from([*SAMPLES, WHOLE, HORIZON, SHARE]))
def test_any_text_is_a_number_none_or_unclear(text: str, quantity: Quantity) -> None:
    try:
        found = read(text, quantity)
    except Unclear as unclear:
        assert unclear.ways
    else:
        assert found is None or isinstance(found, int | float)


@given(st.fractions(0, 10**9, max_denominator=1000).filter(lambda f: 10**6 % f.denominator == 0), st.booleans())
def test_a_written_number_has_one_reading(number: Fraction, comma: bool) -> None:
    style = Style(comma=comma)
    assert readings(written(number, style), style) == [number]


# --- the table --------------------------------------------------------------------------------------------------


def numeric_paths(model: Any, prefix: str = "") -> dict[str, Quantity]:
    """Every place of a section where a number stands, with its quantity."""
    found = {}
    for name in annotations(model):
        annotation = annotation_of(model, name)
        for kind, args in parts(annotation):
            inner = [kind] if hasattr(kind, "model_fields") else []
            inner += [each for arg in args for each, _ in parts(arg) if hasattr(each, "model_fields")]
            for each in inner:
                found |= numeric_paths(each, f"{prefix}{name}.")
        if (quantity := number_in(annotation, prefix + name)) is not None:
            found[prefix + name] = quantity
    return found


def test_every_number_with_a_unit_in_its_name_has_its_kind() -> None:
    """A plain number has no unit to write; one whose name ends in a unit takes the units of its kind."""
    units = {"ms", "s", "hours", "days", "months", "years", "tokens", "usd", "fraction", "rate", "kw", "px"}
    found = {p: q for model in (Spec, Deployment, TrainingRun) for p, q in numeric_paths(model).items()}
    assert len(found) > 100
    named = {p: q for p, q in found.items() if units & set(p.replace(".", "_").replace("_p95", "").split("_")[-1:])}
    assert len(named) > 25 and {p for p, q in named.items() if q.kind == "number"} == set()
    assert {kind for _, kind, _ in ENDINGS} >= {q.kind for q in found.values()} - {"number"}
    assert all(quantity.examples for quantity in found.values())


@pytest.mark.parametrize("model", [Spec, Deployment, TrainingRun])
def test_every_number_takes_its_own_examples(model: Any) -> None:
    for path, quantity in numeric_paths(model).items():
        for example in quantity.examples.partition(";")[0].replace("a number such as ", "").split(" or "):
            for text in example.split(", "):
                wide = within(quantity, -1e18, 1e18)
                assert read(text, wide) is not None, (path, text)


# --- in a workload ----------------------------------------------------------------------------------------------


def test_texts_of_the_grammar_stand_where_numbers_stand() -> None:
    plain = parse({**GOOD, "slo": {"ttft_ms_p95": 2000}, "tco": {"vat-fraction": 0.19, "pue": 1.2}, "owned": {"h": 16},
                   "constraints": {"max_usd_per_month": 40000, "site": {"max_kw": 200}}})  # fmt: skip
    texts = parse({
        "model": "m",
        "traffic": {"input_tokens": "500", "output_tokens": {"mean": "0.1k"}, "requests_per_s": "120/min"},
        "slo": {"ttft_ms_p95": "2 s"}, "tco": {"vat-fraction": "19%", "pue": "1.2"}, "owned": "2 x 8 h",
        "constraints": {"max_usd_per_month": "$40k", "site": {"max_kw": "0.2 MW"}},
    })  # fmt: skip
    assert texts == plain


def test_an_error_names_the_field_what_was_typed_and_both_ways() -> None:
    with pytest.raises(WorkloadError) as caught:
        parse({**GOOD, "slo": {"ttft_ms_p95": "2m"}, "tco": {"discount_rate": "8"}, "objective": "costs"})
    told = {item["field"]: item["message"] for item in caught.value.errors}
    assert told["slo.ttft_ms_p95"] == '"2m" could mean 2 min or 2 million ms; write one of these'
    assert told["tco.discount_rate"] == '"8" could mean 8% or 800%; write one of these'
    assert set(told) == {"slo.ttft_ms_p95", "tco.discount_rate", "objective"}


def test_numbers_stay_numbers_and_words_stay_words() -> None:
    raw = {"concurrency": "max", "isl": 2000, "osl": "0.3k", "weights": "fp8", "count": "2 x 8"}
    assert with_numbers(raw, Deployment) == ({**raw, "osl": 300, "count": 16}, [])


@pytest.mark.parametrize(("text", "found"), [
    ("2 x 8 H100", {"H100": 16}), ("16 H100 SXM", {"H100 SXM": 16}),
    ("h100-sxm: 16, L40S: 4", {"h100-sxm": 16, "L40S": 4}),
    ("16x h100-sxm", {"h100-sxm": 16}), ("h100-sxm x 16", {"h100-sxm": 16}), ("2×8 x H100", {"H100": 16}),
    ("2 servers with 8 H100", {"H100": 16}), ("8 x RTX 3090 Ti", {"RTX 3090 Ti": 8}), ("h100: 2 x 8", {"h100": 16}),
    ("8 H100 and 4 H100", {"H100": 12}), ("1,500 l4", {"l4": 1500}), ("a100: many", {"a100": "many"}),
    ("two H100", None), ("H100", None), ("2 x 8", None),
])  # fmt: skip
def test_machines_are_counted_as_people_write_them(text: str, found: object) -> None:
    assert machines(text) == found
