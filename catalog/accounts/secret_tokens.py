"""Secrets that are shown once and stored as hashes: tokens of people and machines, links, invitations."""

import hashlib
import secrets


def hashed(token: str) -> str:
    """The SHA-256 hash. A token has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(kind: str) -> str:
    return f"{kind}_{secrets.token_urlsafe(32)}"
