"""Guessing passwords: what is limited, and who is not shut out by it."""

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.utils import timezone

from advisor.api.limits import network

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough word"


@pytest.fixture(autouse=True)
def ada(settings: Any) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # hundreds of slow ones prove no more
    settings.LOGIN_FAILURES_ADDRESS, settings.LOGIN_FAILURES_NAME = 20, 30
    return User.objects.create_user("ada", password=PASSWORD)


def sign_in(name: str, password: str = "wrong", address: str = "192.0.2.1", **meta: str) -> int:
    return Client().post("/login", {"username": name, "password": password}, REMOTE_ADDR=address, **meta).status_code


def test_many_names_from_one_address_are_limited() -> None:
    answers = [sign_in(f"user-{n}") for n in range(25)]
    assert answers[:19] == [200] * 19 and answers[19:] == [429] * 6
    assert sign_in("ada", PASSWORD) == 429  # spraying found the right one too late
    assert sign_in("ada", PASSWORD, "192.0.2.2") == 302


def test_one_name_from_many_addresses_is_limited() -> None:
    answers = [sign_in("ada", address=f"198.51.100.{n}") for n in range(1, 33)]
    assert answers[:29] == [200] * 29 and answers[29:] == [429] * 3
    assert sign_in("ada", PASSWORD, "203.0.113.1") == 429


def test_neither_shuts_a_user_out_where_they_have_signed_in_before() -> None:
    assert sign_in("ada", PASSWORD) == 302
    for n in range(1, 33):
        sign_in("ada", address=f"198.51.100.{n}")
        sign_in(f"user-{n}")
    assert sign_in("user-1") == 429
    assert sign_in("ada", PASSWORD) == 302


def test_a_known_address_guesses_ten_times_only() -> None:
    assert sign_in("ada", PASSWORD) == 302
    assert [sign_in("ada") for _ in range(11)][-2:] == [429, 429]


def test_guessing_on_does_not_keep_a_name_locked() -> None:
    for n in range(1, 40):
        sign_in("ada", address=f"198.51.100.{n}")
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=61))
    assert sign_in("ada", PASSWORD, "203.0.113.1") == 302


def test_guessing_during_a_lockout_does_not_lengthen_it() -> None:
    for _ in range(10):
        sign_in("ada")
    before = AccessAttempt.objects.values_list("attempt_time", "failures_since_start").get()
    assert sign_in("ada") == 429
    assert AccessAttempt.objects.values_list("attempt_time", "failures_since_start").get() == before


def test_behind_a_proxy_the_address_that_it_saw_counts(settings: Any) -> None:
    settings.PROXIES = 1
    for n in range(22):
        sign_in(f"user-{n}", HTTP_X_FORWARDED_FOR=f"10.0.0.{n}, 198.51.100.7")
    assert sign_in("ada", PASSWORD, HTTP_X_FORWARDED_FOR="203.0.113.9, 198.51.100.7") == 429
    assert sign_in("ada", PASSWORD, HTTP_X_FORWARDED_FOR="198.51.100.7, 203.0.113.9") == 302


def test_without_a_proxy_its_header_is_not_believed() -> None:
    for n in range(22):
        sign_in(f"user-{n}", HTTP_X_FORWARDED_FOR=f"203.0.113.{n}")
    assert sign_in("ada", PASSWORD, HTTP_X_FORWARDED_FOR="203.0.113.99") == 429


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:5123", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::"),
        ("[2001:db8:0:5::1]:443", "2001:db8:0:5::"),
        ("[2001:db8::1]", "2001:db8::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unknown", None),
        ("", None),
    ],
)
def test_an_address_is_counted_by_its_network(written: str, counted: str | None) -> None:
    assert network(RequestFactory().get("/", REMOTE_ADDR=written)) == counted


def test_what_is_no_address_is_a_wrong_password_and_no_failure_of_ours(settings: Any) -> None:
    settings.PROXIES = 1
    assert sign_in("ada", HTTP_X_FORWARDED_FOR="unknown, _hidden") == 200
