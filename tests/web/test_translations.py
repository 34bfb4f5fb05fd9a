"""Every marked string is translated into every language, and the compiled files are those of the .po files."""

import re

import pytest
from django.conf import settings

from tests import messages

PLACEHOLDERS = re.compile(r"%(?:\(\w+\))?[sdr]|\{\w+\}|%%|<[^>]+>")
LANGUAGES = tuple(messages.LANGUAGES)


def pairs(language: str) -> list[tuple[str, str]]:
    """Each text with each of its translations; of a plural, the last form of both."""
    found = []
    for message in messages.catalog(language):
        if isinstance(message.id, tuple):
            found.append((message.id[-1], message.string[-1]))
        elif message.id:
            found.append((message.id, str(message.string)))
    return found


def test_every_language_has_a_file() -> None:
    assert {"en", *LANGUAGES} == {code for code, _ in settings.LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_marked_string_is_translated(language: str) -> None:
    marked = {(context, text) for context, text, _ in messages.messages()}
    held = {(m.context, m.id[0] if isinstance(m.id, tuple) else m.id) for m in messages.catalog(language) if m.id}
    assert marked - held == set(), "run `make messages`, and translate what it lists"
    assert held - marked == set(), "run `make messages`: these strings are no longer used"
    assert messages.missing(messages.catalog(language)) == []


def test_text_is_marked_only_where_a_translated_page_shows_it() -> None:
    """Marks elsewhere would need translations that nobody sees."""
    elsewhere = {path.relative_to(messages.ROOT) for path in messages.files() if not messages.is_source(path)}
    assert {path for path in elsewhere if messages.marked(messages.ROOT / path)} == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_file_is_that_of_the_translations(language: str) -> None:
    compiled = messages.path_of(language).with_suffix(".mo").read_bytes()
    assert compiled == messages.compiled(messages.catalog(language)), "run `make messages`"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    wrong = [
        (text, said)
        for text, said in pairs(language)
        if sorted(PLACEHOLDERS.findall(text)) != sorted(PLACEHOLDERS.findall(said))
    ]
    assert wrong == []


def test_a_german_translation_starts_and_ends_with_the_spaces_of_its_text() -> None:
    """Texts such as " and " are joined to others. Chinese needs no spaces there."""
    german = pairs("de")
    assert [(text, said) for text, said in german if text[:1] == " " and said[:1] != " "] == []
    assert [(text, said) for text, said in german if text[-1:] == " " and said[-1:] != " "] == []


def test_no_text_is_marked_twice_in_one_template_tag() -> None:
    """A nested tag would become part of the text to translate."""
    assert [text for _, text, _ in messages.messages() if "{%" in text or "{{" in text] == []
