"""Pages in the reader's language and currency; everything else in English, with plain numbers and USD."""

import re
from datetime import date
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from advisor.inputs import what_if
from advisor.models import Advice
from advisor.templatetags import finance, units
from advisor.web import forms
from advisor.web.what_if import controls
from advisor.web.what_if import views as what_if_views
from advisor.workload import Unclear
from catalog.models import ExchangeRate
from catalog.pricing import reader
from tests import sample_advice

GERMAN = {"Accept-Language": "de"}
EUR = reader.Rate(code="EUR", per_usd=0.9, as_of=date(2026, 10, 2), source="ECB")
JPY = reader.Rate(code="JPY", per_usd=150.0, as_of=date(2026, 10, 2), source="ECB")


@pytest.fixture
def rate(db: None) -> None:
    ExchangeRate.objects.create(currency="EUR", per_usd="0.900000", as_of="2026-10-02", source="a test bank")
    ExchangeRate.objects.create(currency="CNY", per_usd="7.000000", as_of="2026-10-02", source="a test bank")


# --- numbers, dates and amounts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "number", "amount", "day", "share", "large"),
    [
        ("en", "10,200", "$1,234", "2026-10-02", "31.4%", "45.0\u00a0billion"),
        ("de", "10.200", "1.234\u00a0$", "02.10.2026", "31,4\u00a0%", "45,0\u00a0Mrd."),
        ("zh-hans", "10,200", "US$1,234", "2026年10月2日", "31.4%", "450\u00a0亿"),
    ],
)
def test_figures_follow_the_language(language: str, number: str, amount: str, day: str, share: str, large: str) -> None:
    with translation.override(language):
        assert units.sig(10220) == number and units.dollars(1234.4) == amount
        assert units.date_text("2026-10-02") == units.date_text(date(2026, 10, 2)) == day
        assert units.percent(0.314) == share and units.large(45e9) == large


@pytest.mark.parametrize(
    ("language", "rate", "shown"),
    [
        ("en", EUR, ("€0.21", "€900", "€0.000315", "€1,080–€2,160", "-€1.71")),
        ("de", EUR, ("0,21\u00a0€", "900\u00a0€", "0,000315\u00a0€", "1.080–2.160\u00a0€", "-1,71\u00a0€")),
        ("zh-hans", JPY, ("JP¥34.50", "JP¥150,000", "JP¥0.0525", "JP¥180,000–JP¥360,000", "-JP¥285")),
    ],
)
def test_amounts_are_converted_at_the_rate(language: str, rate: reader.Rate, shown: tuple[str, ...]) -> None:
    with translation.override(language), reader.using(rate):
        found = (
            units.dollars(0.23 if rate is JPY else 0.2333),
            units.dollars(1000),
            units.dollars(0.00035),
            finance.low_to_high([1200, 2000, 2400]),
            units.dollars(-1.9),
        )
    assert found == shown


def test_without_a_choice_amounts_are_in_dollars() -> None:
    assert (units.dollars(1234), reader.code(), reader.rate()) == ("$1,234", "USD", None)


# --- numbers that are typed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("0,5", "0.5"), ("0.5", "0.5"), ("1.5", "1.5"), ("1234,5", "1234.5"), ("1.234,5", "1234.5"), ("0,125", "0.125"),
        ("1.234.567", "1234567"), ("1 234,5", "1234.5"), ("1,234.5", "1,234.5"), ("-0,2", "-0.2"), ("2,5T", "2.5T"),
        ("2000", "2000"), ("flat", "flat"), ("", ""), ("0.125", "0.125"),
    ],
)  # fmt: skip
def test_a_decimal_comma_is_read_in_german(typed: str, read: str) -> None:
    with translation.override("de"):
        assert units.typed_number(typed) == read


@pytest.mark.parametrize("typed", ["1.234", "1,234", "12.500", "999,999"])
def test_what_could_be_a_thousand_or_a_fraction_is_refused_in_german(typed: str) -> None:
    with translation.override("de"), pytest.raises(ValueError, match=re.sub("[.,]", "", typed)):
        units.typed_number(typed)
    assert units.typed_number(typed) == typed  # in English there is no doubt


@pytest.mark.parametrize("value", ["0.5", "1.234", "12.5", "2000", "0.125", "1234.125", "-0.2"])
def test_a_field_shows_a_number_that_is_read_back(value: str) -> None:
    with translation.override("de"):
        shown = units.number_to_type(value)
        assert "." not in shown and float(units.typed_number(shown)) == float(value)


@pytest.mark.django_db
@pytest.mark.parametrize(("typed", "read"), [("0,5", 0.5), ("1.5", 1.5), ("1.200,5", 1200.5)])
def test_the_form_reads_a_decimal_comma(typed: str, read: float) -> None:
    with translation.override("de"):
        form = forms.WorkloadForm({"model": "m", "traffic.requests_per_s.mean": typed})
        form.is_valid()
        assert form.combined(form.cleaned_data)["traffic"]["requests_per_s"]["mean"] == read


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [("traffic.requests_per_s.mean", "1.234", "1234"), ("traffic.seasonality", "0,8, 1,2", "Dezimalpunkt")],
)
def test_the_form_says_what_is_ambiguous(client: Client, field: str, typed: str, said: str) -> None:
    response = client.post("/", {"model": "meta-llama/Llama-3.1-8B", field: typed}, headers=GERMAN)
    text = response.content.decode()
    error = text.split(f'id="id_{field}_error"')[1].split("</ul>")[0]
    assert response.status_code == 422 and said in error and f'value="{typed}"' in text


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_what_if_never_joins_the_parts_of_a_decimal_comma(language: str) -> None:
    with translation.override(language):
        for control in sorted(what_if_views.NUMBERS):
            assert what_if_views.in_digits(control, "0,9") in ("0.9", "0,9"), control  # this was once 9
        assert what_if_views.in_digits("load", "0,9") == "0.9"
        with pytest.raises(Unclear):
            what_if_views.in_digits("ttft", "1.234")


@pytest.mark.parametrize("language", ["en", "de"])
def test_what_a_what_if_shows_of_a_question_reads_back(language: str) -> None:
    with translation.override(language):
        for name in sorted(what_if_views.NUMBERS):
            for value in ("0.5", "1.234", "12.345", "250", "40000", "1234567"):
                shown = controls.text_in(what_if.BY_NAME[name], [value], is_typed=False)
                assert float(what_if_views.in_digits(name, shown)) == float(value), (name, shown)


# --- pages ------------------------------------------------------------------------------------------------------


def verdict_of(response: Any) -> str:
    return str(response.content.decode().split('<section class="decision"')[1].split("</section>")[0])


@pytest.mark.usefixtures("rate")
@pytest.mark.parametrize(("currency", "per_usd", "symbol"), [("EUR", 0.9, "€"), ("CNY", 7, "CN¥")])
def test_an_answer_in_the_currency_of_its_reader(client: Client, currency: str, per_usd: float, symbol: str) -> None:
    advice = sample_advice.advice()
    stored = Advice.objects.get(pk=advice.pk).result
    page = client.get(f"/advice/{advice.pk}?currency={currency}", headers=GERMAN)
    amount = f"{symbol}{per_usd * stored['recommendations'][0]['usd_per_month']:,.0f}"
    assert amount in verdict_of(page) and page.text.count("a test bank") == 1
    assert Advice.objects.get(pk=advice.pk).result == stored  # only what is shown is converted


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "said"), [("/", "Welche Beschleuniger braucht diese Workload?"), ("/login", "Anmelden")]
)
def test_the_first_pages_are_translated(client: Client, path: str, said: str) -> None:
    assert said in client.get(path, headers=GERMAN).text and said not in client.get(path).text


@pytest.mark.usefixtures("rate")
def test_the_choice_is_remembered(client: Client) -> None:
    sent = client.post("/language", {"language": "de", "currency": "EUR", "next": "/advice"})
    assert (sent.status_code, sent["Location"]) == (302, "/advice")
    text = client.get("/").text
    assert '<html lang="de">' in text and "zum Kurs 0,9 EUR/USD vom 02.10.2026" in text
    assert '<option value="de" lang="de" selected>Deutsch' in text and "<option selected>EUR" in text


@pytest.mark.usefixtures("rate")
@pytest.mark.parametrize("currency", ["XXX", "", "<script>"])
def test_an_unknown_currency_is_ignored(client: Client, currency: str) -> None:
    sent = client.post("/language", {"language": "en", "currency": currency})
    assert "currency" not in sent.cookies
    assert "EUR/USD" not in client.get("/", {"currency": currency}).text


@pytest.mark.django_db
def test_the_choice_leads_to_no_other_site(client: Client) -> None:
    assert client.post("/language", {"language": "de", "next": "https://evil.example/"})["Location"] == "/"


# --- what stays English -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rate")
def test_exports_and_rest_are_the_same_for_every_reader(client: Client) -> None:
    advice = sample_advice.advice()
    base = f"/advice/{advice.pk}"
    paths = [f"{base}/{name}" for name in ("result.json", "options.csv", "advice.md", "workload.yaml")]
    paths += [f"/api/v1/advice/{advice.pk}", "/api/v1/nothing", "/api/v1/prices"]
    plain = {path: client.get(path).content for path in paths}
    reader_of_german = Client()
    reader_of_german.cookies["currency"] = "EUR"
    for path, content in plain.items():
        assert reader_of_german.get(path, headers=GERMAN).content == content, path


@pytest.mark.usefixtures("rate")
def test_the_charts_of_a_page_are_in_dollars(client: Client) -> None:
    advice = sample_advice.advice()
    text = client.get(f"/advice/{advice.pk}?currency=EUR").text
    chart = text.split('id="chart-frontier"')[1].split("</figure>")[0]
    assert "$" in chart and "€" not in chart


def test_nothing_of_one_request_is_left_for_the_next(client: Client, rate: None) -> None:
    client.get("/?currency=EUR", headers=GERMAN)
    assert (translation.get_language(), reader.code()) == ("en", "USD")


# --- kept pages -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rate")
def test_a_kept_page_is_not_shown_in_another_language_or_currency() -> None:
    path, etags, pages = "/catalog/regions", set(), []
    for language, currency in (("en", "USD"), ("de", "USD"), ("de", "EUR"), ("zh-hans", "CNY"), ("en", "USD")):
        client = Client(headers={"Accept-Language": language})
        client.cookies["currency"] = currency
        first, again = client.get(path), client.get(path)
        assert first.content == again.content and f'value="{language}" lang="{language}" selected' in again.text
        assert f"<option selected>{currency}" in again.text
        assert {"Accept-Language", "Cookie"} <= {name.strip() for name in first["Vary"].split(",")}
        etags.add(first["ETag"])
        pages.append(first.content)
    assert len(etags) == 4 and pages[0] == pages[-1]


@pytest.mark.usefixtures("rate")
def test_an_etag_of_one_language_is_not_that_of_another() -> None:
    etag = Client().get("/catalog/regions")["ETag"]
    assert Client().get("/catalog/regions", headers={"If-None-Match": etag}).status_code == 304
    assert Client().get("/catalog/regions", headers=GERMAN | {"If-None-Match": etag}).status_code == 200


def test_the_price_list_also_shows_the_readers_currency_but_its_files_do_not(client: Client, frozen: None) -> None:
    client.cookies["currency"] = "EUR"
    path = "/catalog/prices?accelerator=l4&rows=10"
    assert "1 USD = 0.89087 EUR" in client.get(path).text
    named, plain = (Client().get(f"{path}{more}&format=csv").text for more in ("&currency=EUR", ""))
    assert client.get(f"{path}&format=csv").text == plain != named
