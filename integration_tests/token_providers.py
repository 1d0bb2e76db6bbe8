"""Token providers of ``test_tokens``, which Spark's workers and commands import too."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from streamgroups.tokens import OAuthBearerToken

#: The directory of the issuer. Spark's processes inherit the variable.
DIRECTORY = Path(os.environ.setdefault("STREAMGROUPS_TOKENS", f"{tempfile.gettempdir()}/tokens-{os.getpid()}"))
SECRET_OF_PROVIDER = "eyJhbGciOiJub25lIn0.c2VjcmV0.c2lnbmF0dXJl"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _signed(expires_in_ms: int, **fields: object) -> OAuthBearerToken:
    # Imported late: cryptography is slow.
    from integration_tests.token_issuer import saved_issuer

    with (DIRECTORY / "calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    return OAuthBearerToken(saved_issuer(DIRECTORY).token(**fields), _now_ms() + expires_in_ms, "board")  # type: ignore[arg-type]


def good() -> OAuthBearerToken:
    return _signed(600_000)


def short() -> OAuthBearerToken:
    """The client renews it after 0.75 s. The broker accepts it for longer."""
    return _signed(1_000)


def foreign() -> OAuthBearerToken:
    return _signed(600_000, aud="another-cluster")


def expired() -> OAuthBearerToken:
    return _signed(-5_000)


def failing() -> OAuthBearerToken:
    raise RuntimeError(f"no credentials in the environment, {SECRET_OF_PROVIDER}")
