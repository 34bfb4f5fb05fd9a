"""Every command on a page can be given as it stands: the program, its options, its files, and its question."""

import argparse
import contextlib
import importlib.util
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.test import Client
from django.urls import resolve

from advisor import workload
from tests.docs import ROOT, Said, commands, is_placeholder, lines, spans, words

ADVISE = sorted({said.text for said in commands() if re.match(r"advise fixtures/\S+", said.text)})
ESTIMATE = sorted({said.text for said in commands() if re.match(r"(estimate|waterfall) .*--model \S+/\S+", said.text)})
CURL = [said for said in lines() if said.text.startswith("curl")]
MAKE = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def said_by(page: Said) -> str:
    return f"{page.page.replace('/', '-')}: {page.text[:60]}"


@pytest.mark.parametrize("said", commands(), ids=said_by)
def test_a_command_exists_with_its_options(said: Said) -> None:
    name, *arguments = words(said.text)
    assert name in get_commands(), f"manage.py {name}"
    options = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    known = set(options._option_string_actions)
    for action in options._actions:  # commands with parts, such as `prices check`
        for part in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            known |= set(part._option_string_actions)
    used = {word.split("=")[0] for word in arguments if re.match(r"--\w", word)}
    assert used - known == set()
    if any(
        line.text.endswith(f"manage.py {said.text}") for line in lines()
    ):  # a sentence often names a part of a command
        options.parse_args(["1" if is_placeholder(word) and word.isupper() else word for word in arguments])


@pytest.mark.parametrize("text", ADVISE)
def test_a_question_is_valid_with_its_changes(text: str) -> None:
    _, file, *arguments = shlex.split(text, comments=True)
    spec = workload.load((ROOT / file).read_bytes())
    for change in (after for word, after in zip(arguments, arguments[1:], strict=False) if word == "--set"):
        spec = workload.set_path(spec, *change.split("=", 1))
    if spec.get("kind") != "portfolio":
        workload.parse(spec)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("text", ESTIMATE)
def test_an_estimate_can_be_asked_for(text: str) -> None:
    out, (name, *arguments) = io.StringIO(), shlex.split(text, comments=True)
    code: Any = 0
    try:
        call_command(name, *arguments, stdout=out)
    except SystemExit as done:
        code = done.code
    assert code in (0, 3) and out.getvalue()  # 3: it does not fit, and the page says so


@pytest.mark.parametrize("said", CURL, ids=said_by)
def test_an_address_of_curl_exists(said: Said) -> None:
    for url in re.findall(r"https?://[\w.:]+(/[^\s'\"?]*)", said.text):
        resolve(url.replace("ID", "6f1ed002-ab5d-4f3b-9d4c-000000000000"))


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("said", [said for said in CURL if "--json" in said.text], ids=said_by)
def test_a_body_of_curl_is_accepted(said: Said, client: Client) -> None:
    given = shlex.split(said.text)
    body = given[given.index("--json") + 1]
    url = next(word for word in given if word.startswith("http"))
    answer = client.post("/" + url.split("/", 3)[3], json.loads(body), content_type="application/json")
    assert answer.status_code in (200, 201, 202), answer.content


def test_every_target_of_make_exists() -> None:
    named = {(said.page, m[1]) for said in (*lines(), *spans()) if (m := re.match(r"make ([a-z][\w-]*)", said.text))}
    assert {(page, target) for page, target in named if target not in MAKE} == set()


def test_every_module_that_python_runs_exists_and_knows_its_options() -> None:
    wrong = []
    for said in (*lines(), *spans()):
        for name in re.findall(r"-m ((?:probes|tests|advisor|catalog)[\w.]*)", said.text):
            found = importlib.util.find_spec(name)
            if found is None:
                wrong.append(f"{said.page}: {name}")
                continue
            folder = Path(str(found.origin)).parent
            files = folder.rglob("*.py") if found.submodule_search_locations else [Path(str(found.origin))]
            text = "".join(file.read_text() for file in files)
            after = said.text.split(name, 1)[1]
            wrong += [
                f"{said.page}: {name} {o}" for o in re.findall(r" (--[a-z][\w-]*)", after) if f'"{o}"' not in text
            ]
    assert wrong == []


def test_every_file_that_a_command_reads_exists() -> None:
    read = [(said.page, word.lstrip("@")) for said in lines() for word in words(said.text) if "fixtures/" in word]
    assert [(page, word) for page, word in read if re.match(r"fixtures/", word) and not (ROOT / word).exists()] == []


@pytest.mark.soak
@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("text", ADVISE)
def test_a_question_is_answered(text: str) -> None:
    out, (name, *arguments) = io.StringIO(), shlex.split(text, comments=True)
    with contextlib.suppress(SystemExit):
        call_command(name, *arguments, stdout=out)
    assert out.getvalue()
