"""Bundles: signed, whole, newest first, within their folders; applied at once and undone."""

import datetime
import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import clock
from catalog.bundles import applied, archive
from catalog.bundles.archive import BundleError
from catalog.details import freshness
from catalog.models import Accelerator, CatalogBundle, Price
from tests.conftest import FROZEN

SECRET, PUBLIC = archive.new_key()
NOW = datetime.datetime(2026, 11, 20, 8, tzinfo=datetime.UTC)
FILES = {"catalog/regions.yaml": b"[]\n", "feeds/litellm/0.txt": b'{"a": 1}' * 50}
PACKED = archive.pack(FILES, {"feeds/litellm/0.txt": {"source": "litellm"}}, NOW, SECRET)


def test_a_bundle_comes_back_with_its_files_time_key_and_what_is_said_of_them() -> None:
    found = archive.unpack(PACKED, [archive.new_key()[1], PUBLIC])
    assert (found.files, found.made_at, found.key) == (FILES, NOW, archive.fingerprint(PUBLIC))
    assert found.entries["feeds/litellm/0.txt"]["source"] == "litellm"


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(PACKED) - 1), bit=st.integers(0, 7))
def test_with_a_flipped_bit_it_is_refused_or_holds_the_same_files(place: int, bit: int) -> None:
    changed = bytearray(PACKED)
    changed[place] ^= 1 << bit
    try:
        assert archive.unpack(bytes(changed), [PUBLIC]).files == FILES  # a bit of the archive's own bookkeeping
    except BundleError:
        return


def test_a_flipped_byte_of_a_manifest_or_a_file_is_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(PACKED)) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    for name, data in parts.items():
        for place in range(0, len(data), 7):
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            with pytest.raises(BundleError):
                archive.unpack(zipped(parts | {name: changed}), [PUBLIC])


def zipped(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, data in parts.items():
            new.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("keys", [[], [archive.new_key()[1]]])
def test_an_unknown_key_is_refused_and_the_message_names_the_setting(keys: list[str]) -> None:
    with pytest.raises(BundleError, match="ASSAY_BUNDLE_KEYS"):
        archive.unpack(PACKED, keys)


@pytest.mark.parametrize(
    "path", ["../x", "catalog/../../x", "/etc/x", "catalog//x", "catalog/.x", "other/x", "catalog\\x"]
)
def test_a_path_outside_is_not_packed_and_not_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BundleError, match="path"):
        archive.pack({path: b""}, {}, NOW, SECRET)
    with monkeypatch.context() as patched:
        patched.setattr(archive, "PATH", archive.re.compile(".*"))
        packed = archive.pack({path: b""}, {}, NOW, SECRET)
    with pytest.raises(BundleError):
        archive.unpack(packed, [PUBLIC])


def test_a_file_that_the_manifest_does_not_list_is_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(PACKED)) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with pytest.raises(BundleError, match="different files"):
        archive.unpack(zipped(parts | {"catalog/more.yaml": b""}), [PUBLIC])


@pytest.mark.parametrize("data", [b"", b"no archive", PACKED[: len(PACKED) // 2]])
def test_what_is_no_whole_archive_is_refused(data: bytes) -> None:
    with pytest.raises(BundleError, match="copy the file again"):
        archive.unpack(data, [PUBLIC])


def zipped_as(parts: dict[str, bytes], **attributes: int) -> bytes:
    """An archive whose files have these external attributes, as symbolic links and devices do."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in parts.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = attributes.get("external_attr", 0)
            new.writestr(info, data)
    return out.getvalue()


def parts_of(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as old:
        return {name: old.read(name) for name in old.namelist()}


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig"])
def test_what_would_unpack_to_very_much_is_refused_unread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped_as(parts_of(PACKED) | {name: bytes(20_000_000)})
    assert len(bomb) < 100_000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda archive, read: b"" if read != name else pytest.fail("unpacked"))
    with pytest.raises(BundleError, match="too large|cannot be read"):
        archive.unpack(bomb, [PUBLIC])


def test_signed_files_that_are_too_large_or_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 100)
    with pytest.raises(BundleError, match="more than 100 bytes"):
        archive.unpack(PACKED, [PUBLIC])
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with pytest.raises(BundleError, match="different files"):
        archive.unpack(PACKED, [PUBLIC])


def test_a_symbolic_link_is_read_as_the_text_that_was_signed_and_never_followed() -> None:
    link = 0o120777 << 16
    assert archive.unpack(zipped_as(parts_of(PACKED), external_attr=link), [PUBLIC]).files == FILES
    with pytest.raises(BundleError, match="changed"):
        archive.unpack(
            zipped_as(parts_of(PACKED) | {"catalog/regions.yaml": b"/etc/passwd"}, external_attr=link), [PUBLIC]
        )


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "catalog/regions.yaml"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_twice_is_refused(name: str) -> None:
    out = io.BytesIO(PACKED)
    with zipfile.ZipFile(out, "a") as more:
        more.writestr(name, parts_of(PACKED)[name])
    with pytest.raises(BundleError, match="different files"):
        archive.unpack(out.getvalue(), [PUBLIC])


@pytest.mark.parametrize("key", ["no Base64!", "c2hvcnQ=", PUBLIC + "AAAA", ""], ids=["text", "short", "long", "empty"])
def test_a_key_of_another_format_is_named_as_such(key: str) -> None:
    with pytest.raises(BundleError, match="a key"):
        archive.unpack(PACKED, [PUBLIC, key])
    with pytest.raises(BundleError, match="a key"):
        archive.pack(FILES, {}, NOW, key)


# --- applied and undone -----------------------------------------------------------------------------------------


def bundle(day: int, slug: str = "a30", **changes: tuple[str, str]) -> archive.Bundle:
    """One accelerator file, with replaced texts."""
    text = (FROZEN / "accelerators" / "a30.yaml").read_text()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    made = NOW + datetime.timedelta(days=day)
    files = {f"catalog/accelerators/{slug}.yaml": text.encode()}
    return archive.unpack(archive.pack(files, {}, made, SECRET), [PUBLIC])


def no_feeds(_: archive.Bundle) -> dict:
    return {}


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_bundle_is_applied_with_a_diff_and_undone() -> None:
    before = dict(applied.rows())
    name = Accelerator.objects.get(slug="a30").name
    done = applied.apply(bundle(0, name=(f"name: {name}", "name: A30 of tomorrow")), "me", no_feeds)
    assert Accelerator.objects.get(slug="a30").name == "A30 of tomorrow"
    assert applied.lines(done) == ["Accelerator: 1 changed", "  changed Accelerator a30: name"]
    undone, kept = applied.undo("me")
    assert (undone.pk, kept, dict(applied.rows())) == (done.pk, [], before)
    with pytest.raises(BundleError, match="nothing to undo"):
        applied.undo("me")


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_new_row_goes_and_a_row_that_something_else_changed_stays() -> None:
    name = Accelerator.objects.get(slug="a30").name
    new = bundle(0, "a30-next", key=("slug: a30", "slug: a30-next"), name=(f"name: {name}", "name: A30 next"))
    applied.apply(new, "me", no_feeds)
    applied.undo("me")
    assert not Accelerator.objects.filter(slug="a30-next").exists()
    applied.apply(bundle(1, name=(f"name: {name}", "name: A30 of tomorrow")), "me", no_feeds)
    Accelerator.objects.filter(slug="a30").update(name="by hand")
    assert applied.undo("me")[1] == ["Accelerator a30"]
    assert Accelerator.objects.get(slug="a30").name == "by hand"


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_an_older_bundle_is_refused_until_the_newer_one_is_undone() -> None:
    newer, older = bundle(1), bundle(0)
    applied.apply(newer, "me", no_feeds)
    for again in (newer, older):
        with pytest.raises(BundleError, match="applied already"):
            applied.apply(again, "me", no_feeds)
    applied.undo("me")
    applied.apply(older, "me", no_feeds)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_bundle_of_the_future_is_refused_because_every_later_one_would_be_older() -> None:
    days = (clock.read() - NOW).days + 2
    with pytest.raises(BundleError, match="future"):
        applied.apply(bundle(days), "me", no_feeds)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_undoing_restores_the_version_of_the_catalog() -> None:
    version = freshness.found()["catalog"]["version"]
    applied.apply(bundle(0), "me", no_feeds)
    assert freshness.found()["catalog"]["version"] != version
    applied.undo("me")
    assert freshness.found()["catalog"]["version"] == version


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_what_cannot_be_loaded_changes_nothing() -> None:
    def fails(_: archive.Bundle) -> dict:
        raise BundleError("no")

    before, prices = dict(applied.rows()), Price.objects.count()
    name = Accelerator.objects.get(slug="a30").name
    with pytest.raises(BundleError):
        applied.apply(bundle(0, name=(f"name: {name}", "name: half")), "me", fails)
    assert (dict(applied.rows()), Price.objects.count()) == (before, prices)
    assert not CatalogBundle.objects.exists()
