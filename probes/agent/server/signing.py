"""Signatures of results: HMAC-SHA256 with the key from registration. The agent signs, the server verifies.

Every signed text starts with its purpose, so that a signature cannot be reused for another purpose.
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
FIELD: Final = "signature"  # of a result file: the signer and the signature
KEY: Final = re.compile(r"[0-9a-f]{64}")
NONCE: Final = re.compile(r"[0-9a-f]{16,64}")
SIGNATURE: Final = re.compile(r"v1=[0-9a-f]{64}")


def signed(key: str, *lines: object) -> str:
    text = "\n".join(str(line) for line in lines)
    return f"{VERSION}={hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()}"


def device_identity(device: Mapping[str, Any]) -> str:
    """A hash that identifies a device: of its name and, if the driver reports one, its UUID hash."""
    facts = {name: device.get(name) for name in ("name", "uuid_hash")}
    return hashlib.sha256(canonical(facts)).hexdigest()


def of_result(
    key: str, *, job_id: object, attempt: int, nonce: str, spec_hash: str, device: str, body_hash: str
) -> str:
    """The signature of a result for one lease. `device` is from device_identity."""
    return signed(key, "assay-result-v1", job_id, attempt, nonce, spec_hash, device, body_hash)


def of_file(key: str, install_id: str, document: Mapping[str, Any]) -> str:
    """The signature of a result file, stored in its field FIELD."""
    unsigned = {name: value for name, value in document.items() if name != FIELD}
    return signed(key, "assay-file-v1", install_id, hashlib.sha256(canonical(unsigned)).hexdigest())


def of_registration(key: str, install_id: str, enrolment: str) -> str:
    """Proof for registering the same machine again. The enrollment token is a one-time challenge."""
    return signed(key, "assay-register-v1", install_id, hashlib.sha256(enrolment.encode()).hexdigest())


def same(one: str, other: str) -> bool:
    """Whether two signatures are equal, compared in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())
