"""An issuer of tokens on this machine: the token endpoint of OAuth 2.0 client credentials, and its public keys.

Used by tests with ``secured_brokers.token_broker``. It needs the extra ``keystores``. Sources: RFC 6749 (section 4.4), RFC 7517 (JWKS), RFC 7519 (JWT).
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT_ID, CLIENT_SECRET = "board", "correct horse"
_LIFE_S = 600


class TokenIssuer:
    """Signs tokens. Other processes can sign too: they read the key from a file.

    Args:
        url: the address of the HTTP server.
        key: the private key.
    """

    audience = "kafka"

    def __init__(self, url: str, key: rsa.RSAPrivateKey) -> None:
        self.name, self._key = url, key
        self.token_url, self.jwks_url = f"{url}/token", f"{url}/jwks"
        #: The number of tokens that the endpoint has issued.
        self.issued = 0

    def token(self, *, life_s: float = _LIFE_S, key: rsa.RSAPrivateKey | None = None, **fields: object) -> str:
        """Returns a signed token.

        Args:
            life_s: its life time, in seconds. Negative for an expired token.
            key: another key, for a token that no broker accepts.
            fields: more fields. They override the default ones.
        """
        now_s = int(time.time())
        payload: dict[str, object] = {
            "iss": self.name,
            "aud": self.audience,
            "sub": CLIENT_ID,
            "scope": "kafka",
            "iat": min(now_s, now_s + int(life_s)) - 1,
            "exp": now_s + int(life_s),
            **fields,
        }
        signed = f"{_encoded(json.dumps({'alg': 'RS256', 'typ': 'JWT', 'kid': 'one'}))}.{_encoded(json.dumps(payload))}"
        signature = (key or self._key).sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def save(self, directory: Path) -> None:
        """Writes the issuer to a file, for :func:`saved_issuer` in another process."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / "issuer.json").write_text(json.dumps({"url": self.name, "key": pem.decode()}))

    @property
    def jwks(self) -> dict[str, Any]:
        """The public key."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_encoded(number.to_bytes(-(-number.bit_length() // 8), "big")) for number in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": n, "e": e}]}


def saved_issuer(directory: Path) -> TokenIssuer:
    """Reads the result of :meth:`TokenIssuer.save`."""
    saved = json.loads((directory / "issuer.json").read_text())
    key = serialization.load_pem_private_key(saved["key"].encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return TokenIssuer(saved["url"], key)


def new_key() -> rsa.RSAPrivateKey:
    """Returns a private key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextmanager
def token_issuer() -> Iterator[TokenIssuer]:
    """An issuer whose endpoints answer until the end of the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoints) as server:
        issuer = TokenIssuer(f"http://127.0.0.1:{server.server_port}", new_key())
        server.issuer = issuer  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield issuer
        server.shutdown()


class _Endpoints(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200, self._issuer.jwks)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        login = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {login}":
            self._answer(401, {"error": "invalid_client", "error_description": "the client is unknown"})
            return
        self._issuer.issued += 1
        self._answer(200, {"access_token": self._issuer.token(), "expires_in": _LIFE_S, "token_type": "Bearer"})

    @property
    def _issuer(self) -> TokenIssuer:
        issuer: TokenIssuer = self.server.issuer  # type: ignore[attr-defined]
        return issuer

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _encoded(value: str | bytes) -> str:
    return base64.urlsafe_b64encode(value.encode() if isinstance(value, str) else value).decode().rstrip("=")
