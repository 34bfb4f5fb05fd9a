"""The translations: collects the marked strings, brings the .po files up to date and compiles them.

`python -m tests.messages` (or `make messages`) needs no gettext tools.
"""

import ast
import io
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import django
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()

from advisor.web.forms import presets  # noqa: E402  # needs the settings

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "advisor" / "locale"
PACKAGES = ("advisor", "catalog", "probes")
# What the translated pages (advisor/ops/reader.py) show: folders and files. Only here is text marked.
SOURCES = (
    "advisor/accounts/forms.py",
    "advisor/accounts/pages.py",
    "advisor/templates/403_csrf.html",
    "advisor/templates/accounts/",
    "advisor/templates/advisor/_field.html",
    "advisor/templates/advisor/_group.html",
    "advisor/templates/advisor/_preset.html",
    "advisor/templates/advisor/_quick_estimate.html",
    "advisor/templates/advisor/_reader.html",
    "advisor/templates/advisor/_user_menu.html",
    "advisor/templates/advisor/ask.html",
    "advisor/templates/advisor/base.html",
    "advisor/templatetags/units.py",
    "advisor/turns.py",
    "advisor/web/form_fields/",
    "advisor/web/form_html.py",
    "advisor/web/forms.py",
    "advisor/web/what_if/quick_estimate.py",
    "catalog/accounts/invitations.py",
    "catalog/accounts/organizations.py",
    "catalog/accounts/identities.py",
    "catalog/accounts/quotas.py",
    "catalog/models.py",
)
IN_ENGLISH = ("advisor/templates/accounts/audit.html", "advisor/templates/accounts/tokens.html")
LANGUAGES = {"de": "de", "zh-hans": "zh_Hans"}  # language code: folder
SINGLE = {"_", "gettext", "gettext_lazy", "gettext_noop"}
NOOP = ("gettext_noop as known", "def known(text: str)")
PLURAL, WITH_CONTEXT = {"ngettext", "ngettext_lazy"}, {"pgettext", "pgettext_lazy"}

HEADERS = {"de": "German", "zh-hans": "Simplified Chinese"}

Message = tuple[str | None, str, str | None]  # context, text, plural


def files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*"))]


def is_source(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name not in IN_ENGLISH and any(name == each or each[-1] == "/" and name.startswith(each) for each in SOURCES)


def marked(path: Path) -> list[Message]:
    """The marked strings of a file."""
    if path.suffix not in (".py", ".html", ".txt") or "migrations" in path.parts:
        return []
    text = path.read_text(encoding="utf-8")
    return list(in_python(text) if path.suffix == ".py" else in_template(text))


def messages() -> dict[Message, list[tuple[str, int]]]:
    """Every marked string, with the files that contain it."""
    found: dict[Message, list[tuple[str, int]]] = {}
    for path in filter(is_source, files()):
        for message in marked(path):
            found.setdefault(message, []).append((path.relative_to(ROOT).as_posix(), 0))
    for preset in presets():
        for text in filter(None, (preset["name"], preset["about"])):
            found.setdefault((None, text, None), []).append((f"fixtures/workloads/{preset['slug']}.yaml", 0))
    return found


def in_python(text: str) -> Iterator[Message]:
    single = SINGLE | ({"known"} if any(noop in text for noop in NOOP) else set())
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if name in single and texts:
            yield None, texts[0], None
        elif name in PLURAL and len(texts) > 1:
            yield None, texts[0], texts[1]
        elif name in WITH_CONTEXT and len(texts) > 1:
            yield texts[0], texts[1], None


STRING = r"""(u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*")"""
CALL = re.compile(rf"\b(gettext|ngettext|pgettext|_)\({STRING}(?:\s*,\s*{STRING})?")


def in_template(text: str) -> Iterator[Message]:
    if "{%" not in text and "{{" not in text:
        return
    for name, first, second in CALL.findall(templatize(text)):
        one, other = ast.literal_eval(first), ast.literal_eval(second) if second else None
        if name == "pgettext" and other is not None:
            yield one, other, None
        else:
            yield None, one, other if name == "ngettext" else None


def path_of(language: str) -> Path:
    return LOCALE / LANGUAGES[language] / "LC_MESSAGES" / "django.po"


def catalog(language: str) -> Catalog:
    """The translations as stored; empty if there are none."""
    path = path_of(language)
    if not path.exists():
        return new(language)
    with path.open("rb") as stream:
        return read_po(stream, locale=LANGUAGES[language])


def new(language: str) -> Catalog:
    at = datetime(2026, 1, 1, tzinfo=UTC)  # the same always: files change only with their strings
    return Catalog(
        locale=LANGUAGES[language],
        project="Assay",
        version="1",
        fuzzy=False,
        header_comment=f"# {HEADERS[language]}",
        creation_date=at,
        revision_date=at,
        last_translator="",
        language_team="",
        msgid_bugs_address="",
    )


def updated(language: str) -> Catalog:
    """Every marked string with its translation, if there is one."""
    known, made = catalog(language), new(language)
    for (context, text, plural), places in sorted(messages().items(), key=lambda item: (item[1], item[0][1])):
        old = known.get(text, context)
        both = (text, plural) if plural else text
        said = old.string if old is not None and isinstance(old.string, tuple) == bool(plural) else None
        made.add(both, string=said, context=context, locations=sorted(set(places)))
    return made


def compiled(translations: Catalog) -> bytes:
    """The .mo file."""
    stream = io.BytesIO()
    write_mo(stream, translations)
    return stream.getvalue()


def save(language: str, translations: Catalog) -> None:
    path = path_of(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        write_po(stream, translations, width=120, omit_header=False, include_lineno=False)
    path.with_suffix(".mo").write_bytes(compiled(catalog(language)))


def missing(translations: Catalog) -> list[str]:
    texts = (m.string if isinstance(m.string, tuple) else (m.string,) for m in translations if m.id)
    ids = [m.id if isinstance(m.id, str) else m.id[0] for m in translations if m.id]
    return [text for text, said in zip(ids, texts, strict=True) if not all(said)]


def main() -> int:
    for language in LANGUAGES:
        save(language, updated(language))
        lacking = missing(catalog(language))
        print(f"{language}: {len(catalog(language))} strings, {len(lacking)} without a translation")
        for text in lacking:
            print(f"  {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
