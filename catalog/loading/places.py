"""Countries and areas: what people may write instead of a provider's region, and where regions lie."""

from functools import cache

import yaml

from catalog.shipped import FIXTURES

PATH = FIXTURES / "countries.yaml"


@cache
def _countries() -> dict[str, tuple[str, ...]]:
    """Name or ISO code of a country, or area, in lower case -> all its names: country, code and areas."""
    known: dict[str, tuple[str, ...]] = {}
    for row in yaml.safe_load(PATH.read_text(encoding="utf-8"))["countries"]:
        names = (row["name"].lower(), row["code"].lower(), *row["areas"])
        for written in names[:2]:
            known[written] = names
    return known


@cache
def _regions() -> dict[str, dict[str, str]]:
    """Provider -> region -> ISO code, of regions without a row in regions.yaml."""
    known: dict[str, dict[str, str]] = yaml.safe_load(PATH.read_text(encoding="utf-8")).get("regions", {})
    return known


def country_of_region(provider: str, region: str) -> str:
    """The ISO code of the country of a provider's region; empty if it is not known."""
    return _regions().get(provider, {}).get(region, "") or code_of(region)


def areas_of(country: str) -> list[str]:
    """The country's name, ISO code and areas in lower case; empty if the name or code is not a country's."""
    return list(_countries().get(country.lower(), ()))


@cache
def synonyms() -> dict[str, str]:
    """Other names of countries and areas, in lower case -> the name that `places` has."""
    known: dict[str, str] = yaml.safe_load(PATH.read_text(encoding="utf-8")).get("synonyms", {})
    return known


def places() -> list[str]:
    """Everything that names a country or an area, in lower case."""
    return sorted({name for names in _countries().values() for name in names})


def code_of(place: str) -> str:
    """The ISO code of a country given by name or code, in upper case; empty if it is not a country."""
    names = _countries().get(place.lower(), ())
    return names[1].upper() if names else ""


def codes_in(place: str) -> list[str]:
    """The ISO codes of the countries in an area such as eu, or of one country; empty if the place is unknown."""
    return sorted({names[1].upper() for names in _countries().values() if place.lower() in names})


def place_text(place: str) -> str:
    """A place as people write it: EU, Germany, eu-west-1."""
    text = place.strip()
    if not codes_in(text):
        return text
    return text.upper() if len(text) <= 3 else text.title() if text.islower() else text
