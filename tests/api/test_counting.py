"""How calls are counted: the last one that passes, the tightest limit, minutes, and a cache that does not answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from redis.exceptions import ConnectionError as RedisConnectionError

from advisor.api import limits
from advisor.api.limits import (
    TIGHTEST,
    CountersDown,
    Exceeded,
    Usage,
    count,
    headers,
    network,
    reached,
    rest_s,
    stated_address,
)
from catalog.rest import Number, Text, Whole, YesNo


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000_000.5]  # 40.5 s into a minute
    monkeypatch.setattr(limits.time, "time", lambda: now[0])
    cache.clear()
    return now


def call() -> Any:
    return SimpleNamespace(META={"REMOTE_ADDR": "10.0.0.1"})


def test_the_call_after_the_limit_is_refused_until_the_minute_ends(clock: list[float]) -> None:
    for _ in range(3):
        count(call(), "kind", "who", 3)
    with pytest.raises(Exceeded) as caught:
        count(call(), "kind", "who", 3)
    assert (caught.value.status_code, caught.value.wait) == (429, 20)
    clock[0] += 19.4
    with pytest.raises(Exceeded):
        count(call(), "kind", "who", 3)
    clock[0] += 0.2
    count(call(), "kind", "who", 3)


def test_each_kind_and_caller_is_counted_alone() -> None:
    count(call(), "kind", "who", 1)
    count(call(), "kind", "other", 1)
    count(call(), "other", "who", 1)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_zero_is_none(limit: int) -> None:
    asked = call()
    for _ in range(3):
        count(asked, "kind", "who", limit)
    assert TIGHTEST not in asked.META and not reached("kind", "who", limit)


def test_a_limit_is_reached_with_its_last_call_and_looking_counts_nothing() -> None:
    found = []
    for _ in range(3):
        found.append([reached("kind", "who", 2) for _ in range(2)])
        if len(found) < 3:
            count(call(), "kind", "who", 2)
    assert found == [[False] * 2, [False] * 2, [True] * 2]


def test_the_limit_with_the_fewest_calls_left_is_told() -> None:
    asked = call()
    count(asked, "wide", "who", 100)
    count(asked, "narrow", "who", 2)
    count(asked, "wide", "other", 50)
    assert asked.META[TIGHTEST] == Usage(limit=2, calls=1, reset_s=20)
    count(asked, "equal", "who", 3)
    count(asked, "equal", "who", 3)
    assert asked.META[TIGHTEST].limit == 3  # of those that leave as many calls the one counted last
    count(asked, "equal", "who", 3)
    assert (asked.META[TIGHTEST].limit, asked.META[TIGHTEST].remaining) == (3, 0)


def test_headers_say_what_is_left_and_never_less_than_nothing() -> None:
    assert headers(Usage(limit=5, calls=7, reset_s=20)) == {
        "RateLimit-Limit": "5", "RateLimit-Remaining": "0", "RateLimit-Reset": "20", "RateLimit-Policy": "5;w=60",
    }  # fmt: skip
    assert headers(Usage(limit=5, calls=2, reset_s=1))["RateLimit-Remaining"] == "3"
    assert headers(None) == {}


def test_a_counter_that_was_evicted_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "add", lambda *given: False)
    asked = call()
    count(asked, "kind", "who", 3)
    assert asked.META[TIGHTEST].calls == 1


@pytest.mark.parametrize("trouble", [RedisConnectionError("refused"), OSError("refused")])
def test_counters_that_do_not_answer_are_told_apart_from_a_limit(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def away(*given: Any) -> None:
        raise trouble

    for name in ("add", "get"):
        monkeypatch.setattr(cache, name, away)
    with pytest.raises(CountersDown) as caught:
        count(call(), "kind", "who", 3)
    assert (caught.value.status_code, caught.value.wait) == (503, 5)
    with pytest.raises(CountersDown):
        reached("kind", "who", 3)


def test_a_minute_ends_with_the_clocks(clock: list[float]) -> None:
    assert rest_s() == pytest.approx(19.5)
    clock[0] = 1_000_020.0
    assert rest_s() == 60


def test_names_of_counters_are_short_and_have_no_blanks() -> None:
    assert limits.key("kind", "a b " + "x" * 100) == f"calls.kind.ab{'x' * 62}.16666"


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "seen"), [(0, "10.0.0.1"), (1, "3.3.3.3"), (2, "2.2.2.2"), (3, "1.1.1.1"), (4, "10.0.0.1")]
)
def test_as_many_proxies_are_believed_as_there_are(settings: Any, proxies: int, seen: str) -> None:
    settings.PROXIES = proxies
    asked = call()
    asked.META["HTTP_X_FORWARDED_FOR"] = "1.1.1.1, 2.2.2.2 , ,3.3.3.3"
    assert stated_address(asked) == seen


@pytest.mark.parametrize(("written", "counted"), [
    ("10.0.0.1", "10.0.0.1"), ("10.0.0.1:443", "10.0.0.1"), ("[2001:db8::1]:443", "2001:db8::"),
    ("[2001:db8::1]", "2001:db8::"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"), ("::ffff:10.0.0.1", "10.0.0.1"),
    ("unknown", None), ("", None),
])  # fmt: skip
def test_a_customers_network_is_one_address(written: str, counted: str | None) -> None:
    asked = call()
    asked.META["REMOTE_ADDR"] = written
    assert network(asked) == counted
    assert limits.address(asked) == (counted or written)


# --- fields of bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "given", "taken"), [
    (Text(), " a ", " a "), (Text(allow_blank=True), "", ""), (Whole(), 5, 5), (Whole(), 5.0, 5),
    (Number(), 5, 5.0), (Number(), 1e300, 1e300), (YesNo(), True, True), (YesNo(), False, False),
])  # fmt: skip
def test_a_body_is_taken_in_the_type_that_it_is_described_with(field: Any, given: Any, taken: Any) -> None:
    found = field.run_validation(given)
    assert found == taken and type(found) is type(taken)


@pytest.mark.parametrize(("field", "given"), [
    (Text(), 5), (Text(), ""), (Whole(), "5"), (Whole(), True), (Whole(), 5.5), (Number(), "5"), (Number(), True),
    (Number(), 1.1e300), (Number(), float("inf")), (YesNo(), "yes"), (YesNo(), 1),
])  # fmt: skip
def test_a_body_of_another_type_is_not_converted(field: Any, given: Any) -> None:
    from rest_framework.exceptions import ValidationError

    with pytest.raises(ValidationError):
        field.run_validation(given)
