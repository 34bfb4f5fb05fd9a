"""How figures of a run are written for people."""

import pytest

from advisor.templatetags import training


def spaced(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("days", "text"), [(9.62, "9.62 days"), (0.3, "7.2 hours"), (0.02, "28.8 minutes"), (None, "–")]
)
def test_a_time_has_the_unit_that_reads_best(days: float | None, text: str) -> None:
    assert spaced(training.run_time(days)) == text


@pytest.mark.parametrize(("days", "text", "beside"), [
    ([8.94, 12.6], "8.94–12.6 days", "8.94–12.6"), ([1.5, 2.5], "36 hours–2.5 days", "36 hours–2.5 days"),
    (None, "", ""), ([1, None], "", ""),
])  # fmt: skip
def test_a_range_states_its_unit_once(days: list[float] | None, text: str, beside: str) -> None:
    assert spaced(training.run_times(days)) == text
    assert spaced(training.times_beside(days)) == beside


@pytest.mark.parametrize(
    ("usd", "text"), [([57_834, 90_527], "$57,834–$90,527"), ([4.11, 6.38], "$4.11–$6.38"), ([], "")]
)
def test_a_range_of_costs(usd: list[float], text: str) -> None:
    assert training.dollar_range(usd) == text


@pytest.mark.parametrize(("fraction", "text"), [
    (1, "100%"), (0.99995, "> 99.9%"), (0.9968, "99.7%"), (0.0015, "0.150%"), (0.0002, "< 0.1%"), (None, "–"),
])  # fmt: skip
def test_a_share_of_the_time_is_told_from_all_and_from_none(fraction: float | None, text: str) -> None:
    assert spaced(training.share(fraction)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0.2162, "0.22"), (0.003, "< 0.01"), (0, "0"), (419.4, "419"), (4100, "4,100")]
)
def test_an_expected_number_has_two_digits(count: float, text: str) -> None:
    assert spaced(training.expected(count)) == text


def test_a_very_large_number_is_a_power_of_ten() -> None:
    assert spaced(training.scientific(4.4923e22)) == "4.49 × 10²²" and training.scientific(None) == "–"


@pytest.mark.parametrize(("tokens", "text"), [
    (2e12, "2 trillion"), (1.5e9, "1.5 billion"), (4_194_304, "4,194,304"), (260_000, "260,000"), (None, "–"),
])  # fmt: skip
def test_a_chosen_number_is_as_short_as_is_exact(tokens: float | None, text: str) -> None:
    assert spaced(training.amount(tokens)) == text
