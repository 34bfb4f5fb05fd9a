"""Makes a bundle on a connected machine, and applies it on a server without a way out."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from django.conf import settings

from advisor import refresh
from catalog import clock
from catalog.bundles import CATALOG, FEEDS, MOST_BYTES, Bundle, BundleError, apply, pack, unpack
from catalog.details import freshness
from catalog.loading.fixtures import FixtureError
from catalog.models import CatalogBundle, PriceSource
from catalog.pricing import sync
from catalog.pricing.download import Unreachable, get_bytes, session
from catalog.pricing.sources import Download, Source, named

CATALOG_KINDS = (".yaml", ".csv", ".txt")  # files of a folder of fixtures
LEFT_OUT = ("fidelity", "workloads", "peers")  # folders of it that are no part of the catalog
Json = dict[str, Any]


def make(names: Sequence[str], catalog: Path | None, private_key: str) -> tuple[bytes, list[str]]:
    """The bundle of the named price sources and of a folder of catalog files; and what could not be read.

    BundleError: nothing to carry, or the key is wrong.
    """
    files: dict[str, bytes] = dict(_catalog_files(catalog)) if catalog else {}
    about: dict[str, Json] = {}
    problems = []
    for source, answer in sync.downloaded(names):
        if isinstance(answer, str):
            problems.append(f"{source.name}: {answer}")
            continue
        for number, (name, text) in enumerate(answer.texts.items()):
            path = f"{FEEDS}{source.name}/{number}.txt"
            files[path] = text.encode()
            about[path] = {"source": source.name, "name": name, "as_of": answer.as_of or clock.today().isoformat()}
    if not files:
        raise BundleError("there is nothing to carry: " + ("; ".join(problems) or "name a source or a catalog folder"))
    return pack(files, about, clock.read(), private_key), problems


def _catalog_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_file() and path.suffix in CATALOG_KINDS and place.parts[0] not in LEFT_OUT:
            yield f"{CATALOG}{place.as_posix()}", path.read_bytes()


def content(path: Path) -> bytes:
    """BundleError: it is too large. OSError: it cannot be read."""
    if path.stat().st_size > MOST_BYTES:
        raise BundleError(f"it has more than {MOST_BYTES:,} bytes")
    return path.read_bytes()


def apply_file(path: Path, by: str) -> CatalogBundle:
    """Applies a bundle, all or nothing, and notes which saved answers change.

    BundleError, FixtureError, sync.AlreadyRunning, OSError.
    """
    return _applied(unpack(content(path), settings.BUNDLE_KEYS), by)


def refresh_from(address: str, by: str) -> CatalogBundle | None:
    """Applies the bundle at a URL, or the newest file of a folder; None: it is the same as the last time.

    One that was applied before is not applied again, also if it was undone. Notes when it was read and what went wrong.
    Raises Unreachable, BundleError, FixtureError, sync.AlreadyRunning, OSError.
    """
    now = clock.read()
    row, _ = PriceSource.objects.get_or_create(name=freshness.BUNDLE, defaults={"tried_at": now})
    row.tried_at, row.error = now, ""
    try:
        data, etag = _fetched(address, row.etags.get(address, ""))
        bundle = unpack(data, settings.BUNDLE_KEYS) if data is not None else None
        known = bundle is None or CatalogBundle.objects.filter(digest=bundle.digest).exists()
        applied = None if bundle is None or known else _applied(bundle, by)
    except (Unreachable, BundleError, FixtureError, sync.AlreadyRunning, OSError) as error:
        row.error = str(error)
        raise
    else:
        row.read_at, row.etags = now, {address: etag}
        return applied
    finally:
        row.save()


def _fetched(address: str, etag: str) -> tuple[bytes | None, str]:
    """(the bundle, None if it has not changed since the ETag; its ETag). Of a file, its size and time are the ETag."""
    if address.startswith(("https://", "http://")):
        return get_bytes(session(), address, etag, None, MOST_BYTES)
    place = Path(address)
    files = [path for path in place.iterdir() if path.is_file()] if place.is_dir() else [place]
    if not files:
        return None, etag
    newest = max(files, key=lambda path: (path.stat().st_mtime_ns, path.name))
    mark = f"{newest.name} {newest.stat().st_size} {newest.stat().st_mtime_ns}"
    return (None if mark == etag else content(newest)), mark


def _applied(bundle: Bundle, by: str) -> CatalogBundle:
    found: list[CatalogBundle] = []

    def act() -> list[Json]:
        found.append(apply(bundle, by, lambda given: {"sources": [sync.as_json(each) for each in _feeds(given, by)]}))
        return list(found[0].report["sources"])

    refresh.run_with(by, act)
    return found[0]


def _feeds(bundle: Bundle, by: str) -> Iterator[sync.Read]:
    """Adds each price source of a bundle. BundleError: one cannot be read."""
    for source, answer in downloads(bundle.files, bundle.entries):
        found = sync.add(source, answer, by, date.fromisoformat(answer.as_of))
        if found.error:
            raise BundleError(f"{source.name}: {found.error}")
        yield found


def downloads(files: Mapping[str, bytes], entries: Mapping[str, Json]) -> list[tuple[Source, Download]]:
    """The price sources of a bundle as they were downloaded. BundleError: one is not described."""
    texts: dict[str, dict[str, str]] = {}
    days: dict[str, str] = {}
    for path in sorted(path for path in files if path.startswith(FEEDS)):
        try:
            source, name, day = (str(entries[path][key]) for key in ("source", "name", "as_of"))
            texts.setdefault(source, {})[name] = files[path].decode()
            days[source] = date.fromisoformat(day).isoformat()
        except (KeyError, ValueError) as error:
            raise BundleError(f"{path}: its source, name or day cannot be read") from error
    return [
        (named(name), Download(texts=found, as_of=days[name], dated_by="the bundle")) for name, found in texts.items()
    ]
