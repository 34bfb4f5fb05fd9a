"""A small OpenID Connect provider of its own: discovery, authorization code with PKCE, keys and user information."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT, SECRET = "assay", "the secret of this client, 32 bytes or more"
KEYS = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("right", "wrong")}


@dataclass
class Provider:
    address: str = ""
    person: dict[str, Any] = field(default_factory=dict)  # claims of whoever signs in next
    wrong: dict[str, Any] = field(default_factory=dict)  # claims of the ID token that replace the right ones
    algorithm: str = "RS256"
    key: str = "right"
    token_status: int = 200
    userinfo: dict[str, Any] = field(default_factory=dict)  # replaces claims of the user information
    codes: dict[str, dict[str, str]] = field(default_factory=dict)  # code -> query of /authorize
    calls: list[str] = field(default_factory=list)

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce,
            **self.person, **self.wrong,
        }  # fmt: skip
        kept = {name: value for name, value in claims.items() if value is not None}
        key: Any = {"none": None, "HS256": SECRET}.get(self.algorithm, KEYS[self.key])
        return jwt.encode(kept, key, self.algorithm, headers={"kid": "1"})

    def answer(self, path: str, query: dict[str, str], form: dict[str, str]) -> tuple[int, Any, str]:
        """(status, JSON, Location)."""
        self.calls.append(path)
        if path == "/.well-known/openid-configuration":
            names = {
                "authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys",
                "userinfo_endpoint": "user", "end_session_endpoint": "end",
            }  # fmt: skip
            return 200, {"issuer": self.address} | {k: f"{self.address}/{v}" for k, v in names.items()}, ""
        if path == "/authorize":
            code = secrets.token_hex(8)
            self.codes[code] = query
            return 302, {}, f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        if path == "/keys":
            public = json.loads(RSAAlgorithm.to_jwk(KEYS["right"].public_key()))
            return 200, {"keys": [public | {"kid": "1", "use": "sig"}]}, ""
        if path == "/token":
            asked = self.codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            known = (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
            if asked is None or proof != asked["code_challenge"] or not known or self.token_status != 200:
                return max(self.token_status, 400), {"error": "invalid_grant"}, ""
            return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token(asked["nonce"])}, ""
        if path == "/user":
            return 200, self.person | self.userinfo, ""
        return 200, {"page": path}, ""


@contextmanager
def running() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            url = urlsplit(self.path)
            status, answer, location = provider.answer(url.path, dict(parse_qsl(url.query)), dict(parse_qsl(body)))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if location:
                self.send_header("Location", location)
            reply = json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


def query_of(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
