"""Countries and areas: what people may write instead of a provider's region."""

from functools import cache
from pathlib import Path

import yaml

PATH = Path(__file__).resolve().parents[2] / "fixtures" / "countries.yaml"


@cache
def _countries() -> dict[str, tuple[str, ...]]:
    """Name or ISO code of a country, or area, in lower case -> all its names: country, code and areas."""
    known: dict[str, tuple[str, ...]] = {}
    for row in yaml.safe_load(PATH.read_text(encoding="utf-8"))["countries"]:
        names = (row["name"].lower(), row["code"].lower(), *row["areas"])
        for written in names[:2]:
            known[written] = names
    return known


def areas_of(country: str) -> list[str]:
    """The country's name, ISO code and areas in lower case; empty if the name or code is not a country's."""
    return list(_countries().get(country.lower(), ()))


def places() -> list[str]:
    """Everything that names a country or an area, in lower case."""
    return sorted({name for names in _countries().values() for name in names})
