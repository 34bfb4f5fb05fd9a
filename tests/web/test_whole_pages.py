"""Every page is in one language as a whole. The tests put brackets around every translated text."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.tokens import default_token_generator
from django.core import mail
from django.test import Client
from django.urls import resolve, reverse
from django.utils import translation
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from advisor.ops.reader import TRANSLATED
from advisor.web import form_html, forms
from advisor.web.form_fields import FIELDS, YAML
from catalog.models import Membership, Organisation
from tests import sample_advice
from tests.browser import page_types
from tests.people import member, organisation

OPENED, CLOSED = "⟦", "⟧"
LANGUAGES = ("de", "zh-hans")
UNSEEN = ("script", "style", "datalist", "pre", "code")
VOID = ("meta", "link", "input", "br", "img", "hr")
READ_ALOUD = ("title", "aria-label", "alt", "placeholder", "data-suggestions")
DATA = {"Assay", "English", "Deutsch", "YAML", "42", "Acme", "ada", "bob"}  # names of products, languages and people
CURRENCY = re.compile(r"\b[A-Z]{3}\b")
NAMES = re.compile(r"\b[A-Z][\w.]*[A-Z0-9][\w.]*\b|\b\S+@\S+\b|\d\w*")  # of products, such as ROCm; addresses; numbers
FORM = {
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "kind": "serving",
    "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300",
    "traffic.requests_per_s.mean": "4",
}
ACTIONS = {"quick-estimate", "account-organization", "member-role", "invitation-revoke"}  # not pages


class Seen(HTMLParser):
    """What a reader of a page sees, or hears from a screen reader."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.inside: list[str] = []
        self.language = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.said += [given[name] or "" for name in READ_ALOUD if name in given]
        if tag == "html":
            self.language = given["lang"] or ""
        if tag not in VOID:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not set(UNSEEN) & set(self.inside):
            self.said.append(data)


def language_of(html: str) -> str:
    return Seen(html).language


def untranslated(text: str) -> list[str]:
    """The words of a text that are outside brackets and are no names."""
    inner = re.compile(f"{OPENED}[^{OPENED}{CLOSED}]*{CLOSED}")
    while inner.search(text):
        text = inner.sub(" ", text)
    text = NAMES.sub(" ", CURRENCY.sub(" ", text))
    return [word for word in re.findall(r"[^\W\d_]{2,}", text) if word not in DATA and word.isascii()]


def unlike(html: str) -> list[str]:
    """What is not translated on a page."""
    return untranslated("\n".join(Seen(html).said))


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A language whose translated texts are in brackets."""
    kept = ("gettext", "ngettext", "pgettext")
    calls: dict[str, Any] = {name: getattr(translation, name) for name in kept}
    calls["gettext"]("a"), calls["ngettext"]("a", "b", 1), calls["pgettext"]("a", "b")  # Django resolves them once

    def bracketed(real: Any) -> Any:
        def said(*args: Any) -> str:
            text = str(real(*args))
            return text if translation.get_language() == "en" or not text.strip() else f"{OPENED}{text}{CLOSED}"

        return said

    django: Any = vars(translation)["_trans"]
    for name in kept:
        monkeypatch.setattr(django, name, bracketed(getattr(django, name)))
    form_html.kept_html.cache_clear()
    yield request.param
    form_html.kept_html.cache_clear()


@pytest.fixture
def reader(language: str) -> Client:
    return Client(headers={"Accept-Language": language})


@pytest.fixture
def acme(db: None) -> Organisation:
    return organisation("acme")


# --- translated pages -------------------------------------------------------------------------------------------


def translated_pages(client: Client, acme: Organisation) -> dict[str, Any]:
    """Every translated page, by the name of its URL: first as a visitor, then as an admin."""
    ada, bob = member("ada", "admin", acme, email="ada@acme.example"), member("bob", "planner", acme)
    key = urlsafe_base64_encode(force_bytes(ada.pk))
    token = default_token_generator.make_token(ada)
    found = {
        "login": client.get("/login"),
        "password-reset": client.get("/password/reset"),
        "password-reset-sent": client.get("/password/reset/sent"),
        "password-reset-done": client.get("/password/reset/done"),
        "password-reset-confirm": client.get(f"/password/reset/{key}/{token}", follow=True),
    }
    client.force_login(ada)
    found["members"] = client.post("/members", {"email": "eve@acme.example", "role": "planner"})
    link = re.search(r"http://[^/]+(/join/\S+)", str(mail.outbox[-1].body))
    assert link is not None
    found |= {
        "ask": client.get("/"),
        "account": client.get("/account"),
        "member-remove": client.get(f"/members/{Membership.objects.get(user=bob).pk}/remove"),
    }
    client.logout()
    return {**found, "join": client.get(link[1])}


def test_everything_on_a_translated_page_is_translated(reader: Client, acme: Organisation, language: str) -> None:
    pages = translated_pages(reader, acme)
    assert set(pages) | ACTIONS == TRANSLATED
    assert {name: language_of(page.text) for name, page in pages.items()} == dict.fromkeys(pages, language)
    assert {name: words for name, page in pages.items() if (words := unlike(page.text))} == {}


def test_what_the_account_pages_say_after_a_change_is_translated(reader: Client, acme: Organisation) -> None:
    ada, bob = member("ada", "admin", acme), member("bob", "planner", acme)
    reader.force_login(ada)
    row = Membership.objects.get(user=bob)
    sent = [
        reader.post(f"/members/{row.pk}/role", {"role": "viewer"}, follow=True),
        reader.post(f"/members/{Membership.objects.get(user=ada).pk}/role", {"role": "viewer"}, follow=True),
        reader.post("/members", {"email": "no address", "role": "planner"}),
        reader.post("/account", {"form": "name", "first_name": "42"}, follow=True),
        reader.post("/account", {"form": "password", "old_password": "1", "new_password1": "1", "new_password2": "2"}),
        reader.post("/account/organization", {"organisation": str(acme.pk)}, follow=True),
        reader.post(f"/members/{row.pk}/remove", follow=True),
    ]
    assert [unlike(page.text) for page in sent] == [[]] * len(sent)
    assert all('class="messages"' in page.text or "errorlist" in page.text for page in sent)


# --- the question form ------------------------------------------------------------------------------------------

WRONG = ("x y", "-5", "llama", "7" * 3000)
ALSO_WRONG = ("1e99", "0", "1.234", "a: 1, b: x", "1 2 x", "q1: z2: q1")


@pytest.mark.parametrize("value", [*WRONG, *(pytest.param(each, marks=pytest.mark.soak) for each in ALSO_WRONG)])
def test_a_message_of_the_form_is_translated_or_the_form_is_in_english(value: str, language: str, frozen: None) -> None:
    """Each field with a wrong value, beside a question that is right."""
    mixed: dict[str, Any] = {}
    for path in FIELDS.keys() | {YAML}:
        with translation.override(language):
            form = forms.WorkloadForm({**FORM, path: value})
            if form.is_valid():
                continue
            english = form.in_english() if form.is_in_english else None
            said = [str(each) for found in (english or form).errors.values() for each in found]
        typed = re.compile(re.escape(value[:40]))
        if english:
            mixed |= {f"{path}: {each}": 1 for each in said if OPENED in each} if said else {path: "no message"}
        else:
            mixed |= {f"{path}: {each}": words for each in said if (words := untranslated(typed.sub("", each)))}
    assert mixed == {}


@pytest.mark.parametrize(
    ("field", "value", "is_translated"),
    [
        ("traffic.input_tokens.mean", "", True),
        ("slo.ttft_ms_p95", "-3", True),
        ("tco.price_paths.rent", "1 2 x", False),
        ("yaml", "slo: 3", False),
    ],
)
def test_a_form_with_errors_is_in_one_language(
    reader: Client, language: str, frozen: None, field: str, value: str, is_translated: bool
) -> None:
    page = reader.post("/", {**FORM, field: value})
    assert page.status_code == 422 and page["Content-Language"] == language_of(page.text)
    assert language_of(page.text) == (language if is_translated else "en")
    assert unlike(page.text) == [] if is_translated else OPENED not in page.text
    estimate = re.search(r'hx-post="(/quick-estimate[^"]*)"', page.text)
    assert estimate is not None
    part = reader.post(estimate[1], {**FORM, field: value}).text
    assert "<p" in part and (untranslated(part_text(part)) == [] if is_translated else OPENED not in part)


def part_text(html: str) -> str:
    """The text of the live estimate without the names of chips and formats."""
    return "\n".join(Seen(re.sub(r'<th scope="row">.*?</th>', "", html)).said)


@pytest.mark.parametrize("change", [{}, {"slo.tpot_ms_p95": "0,01"}, {"kind": "training"}, {"model": ""}])
def test_the_live_estimate_is_in_the_language_of_the_form(
    reader: Client, language: str, frozen: None, change: dict[str, str]
) -> None:
    part = reader.post(f"/quick-estimate?language={language}", {**FORM, **change}).text
    assert OPENED in part and untranslated(part_text(part)) == []


def test_several_questions_are_announced_in_the_language_of_the_list(reader: Client, frozen: None) -> None:
    names = "meta-llama/Llama-3.3-70B-Instruct, meta-llama/Llama-3.1-8B"
    page = reader.post("/", {**FORM, "model": names}, follow=True)
    assert page.redirect_chain and OPENED not in page.text and "2 requests were queued" in page.text


# --- all other pages --------------------------------------------------------------------------------------------


def test_all_other_pages_are_in_english_for_every_reader(reader: Client, language: str, frozen: None) -> None:
    advice = sample_advice.advice()
    paths = {**page_types.CATALOG, **page_types.OTHERS, **page_types.of_advice(advice)}
    paths = {name: path for name, path in paths.items() if resolve(path.split("?")[0]).view_name not in TRANSLATED}
    pages = {name: reader.get(path, follow=True) for name, path in paths.items()}
    pages["missing"] = reader.get("/nothing")
    pages["missing preset"] = reader.get("/?preset=nothing")
    assert {name for name, page in pages.items() if OPENED in page.text} == set()
    assert {language_of(page.text) for page in pages.values() if "<html" in page.text} == {"en"}
    assert {page["Content-Language"] for page in pages.values() if "Content-Language" in page} == {"en"}


def test_numbers_and_dates_of_an_answer_are_those_of_english(frozen: None) -> None:
    """The whole page, apart from the choice of the language."""
    path = f"/advice/{sample_advice.advice().pk}"
    pages = [Client(headers={"Accept-Language": name}).get(path).text for name in ("en", *LANGUAGES)]
    changing = re.compile(r' selected|name="csrfmiddlewaretoken" value="\w+"')
    assert len({changing.sub("", page) for page in pages}) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_says_which_pages_are_translated(language: str) -> None:
    client = Client(headers={"Accept-Language": language})
    for path in ("/", "/advice"):
        with translation.override(language if path == "/" else "en"):
            said = translation.gettext(
                "In German and Chinese: the question form, sign-in, your account and the members. Answers, the catalog "
                "and all other pages are in English."
            )
        page = client.get(path).text
        assert said in page and re.search(f'value="{language}"[^>]* selected', page)
    assert language_of(client.get("/?language=en").text) == "en"


def test_a_refusal_is_in_english(reader: Client, acme: Organisation) -> None:
    reader.force_login(member("bob", "viewer", acme))
    page = reader.get(reverse("members"))
    assert page.status_code == 403 and OPENED not in page.text and "needs the role admin" in page.text
