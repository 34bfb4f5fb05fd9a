"""The file format of a bundle: a ZIP archive with a manifest, its signature (Ed25519) and the files it lists.

manifest.json   {"format": 1, "made_at": ISO time, "key": fingerprint, "files": [{"path", "sha256", ...}]}
manifest.sig    signature of the bytes of manifest.json
PATH ...        catalog/... (fixtures) and feeds/SOURCE/NUMBER.txt (downloaded texts)
"""

import base64
import binascii
import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from catalog.loading.bounded import FILES, read_json

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
PATH = re.compile(r"(catalog|feeds)(/[A-Za-z0-9][A-Za-z0-9._-]*)+")  # no empty part, no leading dot, no backslash
MOST_BYTES = 500_000_000  # of all files, unpacked
MOST_MANIFEST_BYTES = 10_000_000
MOST_SIGNATURE_BYTES = 1_000
KEY_BYTES = 32
CLOCKS_DIFFER = timedelta(hours=1)  # at most, between the two machines
MOST_FILES = 20_000
FINGERPRINT_CHARS = 16
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError, OSError)
Json = dict[str, Any]


class BundleError(ValueError):
    """A bundle that must not be applied; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A bundle whose signature and checksums are right."""

    digest: str  # SHA-256 of the manifest
    made_at: datetime
    key: str  # fingerprint of the key that signed it
    files: Mapping[str, bytes]  # by path
    entries: Mapping[str, Json]  # what the manifest says of each file


def new_key() -> tuple[str, str]:
    """(private key, public key) in Base64, 32 bytes each."""
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return base64.b64encode(secret).decode(), _text_of(key.public_key())


def fingerprint(public_key: str) -> str:
    """A short name of a public key for people and manifests."""
    return hashlib.sha256(_raw(public_key)).hexdigest()[:FINGERPRINT_CHARS]


def pack(files: Mapping[str, bytes], about: Mapping[str, Json], made_at: datetime, private_key: str) -> bytes:
    """The archive. about: further keys of a file's entry in the manifest, by path."""
    key = Ed25519PrivateKey.from_private_bytes(_raw(private_key))
    for path in files:
        if not PATH.fullmatch(path):
            raise BundleError(f"{path}: not a path that a bundle may hold")
    entries = [
        {"path": path, "sha256": hashlib.sha256(data).hexdigest(), **about.get(path, {})}
        for path, data in sorted(files.items())
    ]
    public = _text_of(key.public_key())
    head = {"format": FORMAT, "made_at": made_at.isoformat(), "key": fingerprint(public), "files": entries}
    manifest = json.dumps(head, indent=1, sort_keys=True).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, manifest)
        archive.writestr(SIGNATURE, base64.b64encode(key.sign(manifest)))
        for path, data in sorted(files.items()):
            archive.writestr(path, data)
    return out.getvalue()


def unpack(data: bytes, trusted_keys: Sequence[str]) -> Bundle:
    """The bundle in `data`. BundleError: not one, an unknown key, a changed byte, or a path that it may not hold.

    trusted_keys: public keys in Base64. Nothing of the archive is used before its signature is checked.
    """
    if not trusted_keys:
        raise BundleError(
            "no public key is configured; set ASSAY_BUNDLE_KEYS as `prices key` printed it on the other machine"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _checked(archive, {fingerprint(key): key for key in trusted_keys})
    except BundleError:
        raise
    except (*BROKEN, KeyError, ValueError, TypeError) as error:
        raise BundleError("this is not a whole bundle; copy the file again") from error


def _checked(archive: zipfile.ZipFile, trusted: Mapping[str, str]) -> Bundle:
    for name, most in ((MANIFEST, MOST_MANIFEST_BYTES), (SIGNATURE, MOST_SIGNATURE_BYTES)):
        if archive.getinfo(name).file_size > most:  # no more than this is unpacked of an entry
            raise BundleError(f"{name} is too large: this is not a bundle of `prices fetch`")
    manifest = archive.read(MANIFEST)
    head = _signed(manifest, archive.read(SIGNATURE), trusted)
    entries = {str(entry["path"]): entry for entry in head["files"]}
    if sorted(archive.namelist()) != sorted([*entries, MANIFEST, SIGNATURE]) or len(entries) > MOST_FILES:
        raise BundleError("the archive and its manifest list different files; copy the file again")
    if bad := next((name for name in entries if not PATH.fullmatch(name)), None):
        raise BundleError(f"{bad}: a path outside of the bundle; nothing was read")
    if sum(archive.getinfo(name).file_size for name in entries) > MOST_BYTES:
        raise BundleError(f"its files have more than {MOST_BYTES:,} bytes")
    files = {name: archive.read(name) for name in entries}
    for path, content in files.items():
        if hashlib.sha256(content).hexdigest() != entries[path]["sha256"]:
            raise BundleError(f"{path}: changed since the bundle was signed; copy the file again")
    made_at = datetime.fromisoformat(head["made_at"])
    if made_at.tzinfo is None:
        raise BundleError("its time has no time zone")
    return Bundle(
        digest=hashlib.sha256(manifest).hexdigest(),
        made_at=made_at,
        key=head["key"],
        files=files,
        entries=entries,
    )


def _signed(manifest: bytes, signature: bytes, trusted: Mapping[str, str]) -> Json:
    """The manifest, whose signature is right."""
    try:
        head = read_json(manifest, FILES)
        name = str(head["key"])
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError("its manifest cannot be read; copy the file again") from error
    if name not in trusted:
        raise BundleError(f"it is signed with key {name}, which is not in ASSAY_BUNDLE_KEYS ({', '.join(trusted)})")
    try:
        Ed25519PublicKey.from_public_bytes(_raw(trusted[name])).verify(base64.b64decode(signature), manifest)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise BundleError("its signature is wrong: the file was changed after it was made; copy it again") from error
    if head.get("format") != FORMAT:
        raise BundleError(f"it has format {head.get('format')}, and this version of Assay reads {FORMAT}; update Assay")
    return dict(head)


def _text_of(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def _raw(key: str) -> bytes:
    """The bytes of a key in Base64. BundleError: it is no such text, or of another length."""
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BundleError("a key is not Base64 text; copy it as `prices key` printed it") from error
    if len(raw) != KEY_BYTES:
        raise BundleError(f"a key has {len(raw)} bytes instead of {KEY_BYTES}; copy it as `prices key` printed it")
    return raw
