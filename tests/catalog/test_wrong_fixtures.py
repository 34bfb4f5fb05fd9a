"""A wrong value anywhere in a fixture file is refused with a message that names the file, or loads as it is."""

import copy
import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from catalog.loading import fixtures, frameworks

ROOT = Path(__file__).parents[2] / "fixtures"
LISTS = {
    "quantization": fixtures.quantization,
    "regions": fixtures.region,
    "api_providers": fixtures.api_provider,
    "units": fixtures.unit,
    "overheads": fixtures.assumption,
}
WRONG = ("abc", "$oops", 3.5, -1, 0, True, None, ["q"], {"q": "r"}, date(2026, 1, 1))
TRIES = 8  # of each file or row


def places(given: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ()
    return [place for key, each in pairs for place in ((*at, key), *places(each, (*at, key)))]


def spoiled(given: Any, chance: random.Random) -> Any:
    """A copy with one value replaced, removed, or an unknown key beside it."""
    whole = copy.deepcopy(given)
    *way, last = chance.choice(places(whole))
    inner = whole
    for key in way:
        inner = inner[key]
    action = chance.choice(("replace", "remove", "add"))
    if action == "remove":
        del inner[last]
    elif action == "add" and isinstance(inner, dict):
        inner["surprise"] = 1
    else:
        inner[last] = chance.choice(WRONG)
    return whole


def loads_or_is_refused(read: Any, *given: Any) -> bool:
    try:
        read(*given)
    except fixtures.FixtureError as error:
        return ":" in str(error)
    return True


@pytest.mark.parametrize("folder", ["accelerators", "models", "calibration", "frameworks"])
def test_a_wrong_file_is_refused_with_its_place(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = frameworks.templates(ROOT)
    readers = {
        "accelerators": fixtures.accelerator,
        "models": fixtures.served_model,
        "calibration": fixtures.calibration,
        "frameworks": lambda path: frameworks.versions(path, known),
    }
    for path in sorted((ROOT / folder).glob("*.yaml")):
        given, chance = fixtures.read_yaml(path), random.Random(path.name)
        for _ in range(TRIES):
            wrong = spoiled(given, chance)
            with monkeypatch.context() as patch:
                for module in (fixtures, frameworks):
                    patch.setattr(module, "read_yaml", lambda _, wrong=wrong: wrong)
                assert loads_or_is_refused(readers[folder], path), wrong


@pytest.mark.parametrize("name", LISTS)
def test_a_wrong_row_of_a_list_is_refused_with_its_place(name: str) -> None:
    for number, given in enumerate(fixtures.read_yaml(ROOT / f"{name}.yaml")):
        chance = random.Random(f"{name} {number}")
        for _ in range(TRIES):
            wrong = spoiled(given, chance)
            assert loads_or_is_refused(LISTS[name], name, wrong), wrong
