"""Signatures of results: HMAC-SHA256 with the key that registration gave. The agent signs, the server checks.

Every text that is signed begins with what it is for, so that a signature of one kind is worth nothing as another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from probes.agent.spec import canonical

HEADER: Final = "Assay-Signature"
VERSION: Final = "v1"
FIELD: Final = "signature"  # of a result file: who signed it, and the signature
KEY: Final = re.compile(r"[0-9a-f]{64}")
NONCE: Final = re.compile(r"[0-9a-f]{16,64}")
SIGNATURE: Final = re.compile(r"v1=[0-9a-f]{64}")


def signed(key: str, *lines: object) -> str:
    text = "\n".join(str(line) for line in lines)
    return f"{VERSION}={hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()}"


def device_identity(device: Mapping[str, Any]) -> str:
    """A hash of what tells this device from another: its name and, where the driver gives one, its serial identity."""
    told = {name: device.get(name) for name in ("name", "uuid_hash")}
    return hashlib.sha256(canonical(told)).hexdigest()


def of_result(
    key: str, *, job_id: object, attempt: int, nonce: str, spec_hash: str, device: str, body_hash: str
) -> str:
    """The signature of a result that answers a lease; `device` is its `device_identity`."""
    return signed(key, "assay-result-v1", job_id, attempt, nonce, spec_hash, device, body_hash)


def of_file(key: str, install_id: str, document: Mapping[str, Any]) -> str:
    """The signature of a result document, which lies in it under FIELD."""
    unsigned = {name: value for name, value in document.items() if name != FIELD}
    return signed(key, "assay-file-v1", install_id, hashlib.sha256(canonical(unsigned)).hexdigest())


def of_registration(key: str, install_id: str, enrolment: str) -> str:
    """Proof of a machine that registers again. The server's enrolment token is the challenge: it works once."""
    return signed(key, "assay-register-v1", install_id, hashlib.sha256(enrolment.encode()).hexdigest())


def same(one: str, other: str) -> bool:
    """In a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())
