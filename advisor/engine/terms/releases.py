"""Order of framework releases, and how many lie between a measured one and the one asked about."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

RELEASE = re.compile(r"[vb]?(\d+(?:\.\d+)*)(?:[^0-9.].*|\.[^0-9].*)?")
RELEASED, MEASURED = "released:", "measured:"  # scopes by framework: the versions are their keys


@lru_cache(maxsize=4096)
def release_key(version: str) -> tuple[int, ...] | None:
    """Numbers by which releases are ordered; None for names such as nightly-dev. Suffixes are ignored."""
    found = RELEASE.fullmatch(version)
    return tuple(int(n) for n in found[1].split(".")) if found else None


def at_or_below(versions: Iterable[str], asked: str) -> list[str]:
    """The versions up to the one asked about, oldest first; none if that one has no number."""
    limit = release_key(asked)
    if limit is None:
        return []
    known = [(key, v) for v in versions if (key := release_key(v)) is not None and not _after(key, limit)]
    return [v for _, v in sorted(known)]


def _after(key: tuple[int, ...], limit: tuple[int, ...]) -> bool:
    """Whether a release comes after `limit`; 1 stands for all of 1.x."""
    return key[: len(limit)] > limit[: len(key)]


def measured_release(scopes: Mapping[str, Mapping[str, Any]], framework: str, asked: str) -> tuple[str, int]:
    """(the newest measured release at or below the one asked about, releases since then).

    ("", 0) where none is known: then nothing says how far the figures are from the release.
    """
    measured = at_or_below(scopes.get(MEASURED + framework, {}), asked)
    if not measured:
        return "", 0
    last = release_key(measured[-1]) or ()
    since = [v for v in at_or_below(scopes.get(RELEASED + framework, {}), asked) if _after(release_key(v) or (), last)]
    return measured[-1], len(since)
