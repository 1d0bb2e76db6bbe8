"""Tokens of OAUTHBEARER: the result of a token provider, its check, and the time of its renewal.

Users create :class:`OAuthBearerToken` in their token provider. ``streamgroups_kafka.client.token_providers`` calls the provider,
and then these functions. Sources: KIP-255 (OAUTHBEARER), KIP-342 (extensions), RFC 6750 (the characters of a token).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from streamgroups.errors import InvalidOption, TokenUnavailable

#: The characters of a bearer token (RFC 6750), as librdkafka and the broker accept them.
_TOKEN = re.compile(r"[\x21-\x7e]+")
#: The names and values of SASL extensions (RFC 7628).
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
#: A smaller number of milliseconds is before 2001. It is probably a number of seconds.
_MIN_PLAUSIBLE_MS = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A token of a token provider.

    Its ``repr`` does not contain the token, and it cannot be pickled: each process calls the provider itself.

    Args:
        token: the text that the broker receives.
        expires_at_ms: when the token expires, in milliseconds since the epoch.
        principal: the name of the principal, for logs of the client.
        extensions: the SASL extensions (KIP-342), such as ``logicalCluster`` of Confluent Cloud.

    >>> OAuthBearerToken("eyJhbGciOi", expires_at_ms=1_764_000_000_000, principal="board")
    OAuthBearerToken(expires_at_ms=1764000000000, principal='board')
    """

    token: str = field(repr=False)
    expires_at_ms: int
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A token must not leave its process. Each process calls the token provider itself.")


def checked_token(answer: object, source: str, now_ms: int) -> OAuthBearerToken:
    """Returns the result of a token provider, if it is a valid token.

    Args:
        answer: the result.
        source: the provider, for the text of an error.
        now_ms: the time, in milliseconds since the epoch.

    Raises:
        InvalidOption: if the result is no token.
        TokenUnavailable: if the token has expired.

    >>> checked_token(("eyJhbGciOi", 1_764_000_000_000), "The token provider 'board:token'", 0)
    Traceback (most recent call last):
    ...
    streamgroups.errors.InvalidOption: The token provider 'board:token' returned a tuple. Return OAuthBearerToken(token, expires_at_ms).
    """
    if not isinstance(answer, OAuthBearerToken):
        raise InvalidOption(
            f"{source} returned a {type(answer).__name__}.",
            remedy="Return OAuthBearerToken(token, expires_at_ms).",
        )
    if not isinstance(answer.token, str) or _TOKEN.fullmatch(answer.token) is None:
        raise InvalidOption(
            f"{source} returned a token that is empty or has characters other than printable ASCII.",
            remedy="Return the text of the token, without 'Bearer' and without a line end.",
        )
    if isinstance(answer.expires_at_ms, bool) or not isinstance(answer.expires_at_ms, int):
        raise InvalidOption(
            f"{source} returned expires_at_ms as {type(answer.expires_at_ms).__name__}.",
            remedy="Return milliseconds since the epoch, as an integer.",
        )
    if not _are_extensions(answer.extensions):
        raise InvalidOption(
            f"{source} returned malformed extensions.",
            remedy="Return a dictionary of texts. A name consists of letters, and is not 'auth' (RFC 7628).",
        )
    if answer.expires_at_ms <= now_ms:
        past_s = (now_ms - answer.expires_at_ms) / 1000
        is_in_seconds = 0 < answer.expires_at_ms < _MIN_PLAUSIBLE_MS <= now_ms
        raise TokenUnavailable(
            f"{source} returned a token that expired {past_s:.0f} s ago.",
            remedy="Return expires_at_ms in milliseconds: it seems to be in seconds."
            if is_in_seconds
            else "Request a new token in each call, and check the clock of this machine.",
        )
    return answer


def _are_extensions(extensions: object) -> bool:
    return isinstance(extensions, Mapping) and all(
        isinstance(name, str)
        and isinstance(value, str)
        and name != "auth"
        and _EXTENSION_NAME.fullmatch(name)
        and _EXTENSION_VALUE.fullmatch(value)
        for name, value in extensions.items()
    )


def renew_at_ms(obtained_at_ms: int, expires_at_ms: int) -> int:
    """Returns when a token is renewed: at 75 % of its life time.

    Args:
        obtained_at_ms: when the token was requested, in milliseconds since the epoch.
        expires_at_ms: when it expires.

    >>> renew_at_ms(0, 3_600_000)
    2700000
    """
    return obtained_at_ms + (expires_at_ms - obtained_at_ms) * 3 // 4
