"""Commands as data: parts under conditions, values that stay one word, and mistakes that are named."""

import pytest

from advisor.engine.terms.command_template import (
    CONDITIONS,
    VALUES,
    command_arguments,
    template_of,
    text_lines,
    without_parts,
)

ROW = {
    "command": [
        "serve $checkpoint --port 8000",
        {"when": "pipeline", "add": "--stages $pipeline_parallel"},
        {"when": ["cpu", "not vectors"], "add": "--threads 8"},
        {"when": "draft_ngram", "add": """--draft '{"tokens": $draft_tokens}'"""},
        {"when": "prefill_pool", "add": "--pool prefill"},
    ],
    "options_file": "options.yaml",
    "options": ["a: $checkpoint", {"when": "adapters", "add": "rank: $adapter_rank"}],
}
GIVEN = {"checkpoint": "a b; rm -rf $HOME", "pipeline_parallel": 4, "draft_tokens": 3, "adapter_rank": 16}


def words(*true: str) -> list[str]:
    return command_arguments(template_of(ROW).command, GIVEN, frozenset(true))


def test_a_value_stays_one_word_whatever_is_in_it() -> None:
    assert words() == ["serve", "a b; rm -rf $HOME", "--port", "8000"]


def test_a_part_is_used_where_all_its_conditions_hold() -> None:
    assert words("pipeline")[-2:] == ["--stages", "4"]
    assert words("cpu")[-2:] == ["--threads", "8"] and "--threads" not in words("cpu", "vectors")


def test_a_quoted_part_is_one_word() -> None:
    assert words("draft_ngram")[-1] == '{"tokens": 3}'


def test_the_lines_of_an_options_file_are_not_split() -> None:
    template = template_of(ROW)
    assert text_lines(template.options, GIVEN, frozenset({"adapters"})) == ["a: a b; rm -rf $HOME", "rank: 16"]


def test_what_a_command_can_switch_on_follows_from_its_parts() -> None:
    template = template_of(ROW)
    assert template.draft_methods == {"ngram"} and template.separates_pools
    without = template_of(without_parts(ROW, ["drafts", "pools", "adapters"]))
    assert without.draft_methods == frozenset() and not without.separates_pools
    assert [part.text for part in without.options] == ["a: $checkpoint"] and len(without.command) == 3


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "missing command"),
        ({"command": "serve"}, "command: write a list of texts"),
        ({"command": [{"if": "cpu", "add": "x"}]}, "command, entry 1: write a text, or a mapping"),
        ({"command": ["serve $nothing"]}, r"unknown value \$nothing; allowed are accelerator_name"),
        ({"command": ["serve $"]}, r"write \$\$ for a dollar sign"),
        ({"command": [{"when": "sunny", "add": "x"}]}, "unknown condition sunny; allowed"),
        ({"command": [{"when": 1, "add": "x"}]}, "write a condition, or a list"),
        ({"command": ["serve 'x"]}, "quote it as in a shell"),
        ({"command": ["serve"], "options": ["a: 1"]}, "also set options_file"),
        ({"command": ["serve"], "comand": []}, "unknown key comand; allowed are command"),
        ({"command": ["serve"], "reserves_slots": "yes"}, "reserves_slots: write true or false"),
        ({"command": ["serve"], "launcher": ["x"]}, "launcher: write a text"),
    ],
)
def test_a_mistake_in_a_template_is_named(row: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        template_of(row)


def test_every_value_and_condition_is_explained() -> None:
    assert all(VALUES.values()) and all(CONDITIONS.values())
