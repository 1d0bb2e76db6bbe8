"""Tokens of OAUTHBEARER for all clients of a process: from a function of the user, or from a token endpoint.

:class:`~streamgroups_kafka.client.config.ClientConfig` requests a token before it returns the settings of a client. So a
failure has a reason: librdkafka reports a failed callback 10 seconds later, without one. The three kinds of clients
receive tokens in their own ways:

- kafka-python calls :meth:`TokenSource.current` for each connection.
- confluent-kafka's clients call ``oauth_cb`` on their own threads. The callback does not use the client.
- The native reader gets a token before each read and, once it is renewed, during a read.

For client credentials (``sasl.oauthbearer.method=oidc``) librdkafka requests its tokens itself: confluent-kafka waits for
one second in the constructor of each client with ``oauth_cb``.

The name of a provider travels to Spark's workers, and each process imports it there. Tokens do not leave their process.
Sources: KIP-255, KIP-768; librdkafka's ``rd_kafka_oauthbearer_set_token``.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from streamgroups.errors import InvalidOption, StreamGroupsError, TokenUnavailable
from streamgroups.tokens import OAuthBearerToken, checked_token, renew_at_ms
from streamgroups_kafka.client.client_credentials import ClientCredentials
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.jaas import PROVIDER

logger = logging.getLogger(__name__)

#: How long a failed renewal is not repeated while the token is valid, as in librdkafka. Its expiry ends the wait.
_RETRY_MS = 10_000
#: How long the failure is not repeated without a valid token: several clients are created at once.
_RETRY_WITHOUT_TOKEN_MS = 1_000


class TokenSource:
    """The current token of one provider. Safe to call from any thread.

    Args:
        name: the provider, for errors and logs.
        obtain: requests a new token.
        redact: removes secrets from a text.
        clock_ms: the wall clock, in milliseconds since the epoch.

    >>> source = TokenSource("The provider", lambda: OAuthBearerToken("abc", 4_000), str, clock_ms=lambda: 0)
    >>> source.current()
    OAuthBearerToken(expires_at_ms=4000, principal='')
    """

    def __init__(
        self,
        name: str,
        obtain: Callable[[], object],
        redact: Callable[[str], str],
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._name, self._obtain, self._redact, self._clock_ms = name, obtain, redact, clock_ms
        self._lock = threading.Lock()
        self._token: OAuthBearerToken | None = None
        self._attempt_ms, self._renew_at_ms = 0, 0
        self._failure: StreamGroupsError | None = None

    def current(self) -> OAuthBearerToken:
        """Returns a valid token. It is renewed at 75 % of its life time.

        If the renewal fails, the token is used until it expires, and the failure is logged.

        Raises:
            TokenUnavailable: if there is no valid token.
            LoginRejected: if the token endpoint rejects the client.
            InvalidOption: if the provider cannot be imported, or returns no token.
        """
        with self._lock:
            now = self._clock_ms()
            # The wall clock can be set back.
            if not self._attempt_ms <= now < self._renew_at_ms:
                self._renew(now)
            if self._token is not None and now < self._token.expires_at_ms:
                return self._token
            assert self._failure is not None
            # A copy: a raised error collects the traceback of each raise.
            raise self._failure.with_text(self._failure.what, self._failure.remedy)

    def rejected(self) -> None:
        """Renews the token at its next use, because a broker has rejected it: it can be revoked before its end.

        A token of the last ten seconds is not renewed.

        >>> tokens = iter("ab")
        >>> clock = iter([0, 5_000, 5_000, 10_000, 10_000])
        >>> source = TokenSource("The provider", lambda: OAuthBearerToken(next(tokens), 90_000), str, clock_ms=lambda: next(clock))
        >>> first = source.current()
        >>> source.rejected(); source.current() == first
        True
        >>> source.rejected(); source.current() == first
        False
        """
        with self._lock:
            if self._clock_ms() - self._attempt_ms >= _RETRY_MS:
                self._renew_at_ms = 0

    def for_librdkafka(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """The callback ``oauth_cb`` of confluent-kafka's clients."""
        token = self.current()
        return token.token, token.expires_at_ms / 1000, token.principal, dict(token.extensions)

    def _renew(self, now: int) -> None:
        self._attempt_ms = now
        try:
            token = checked_token(self._call_provider(), self._name, now)
        except StreamGroupsError as e:
            expires_at_ms = 0 if self._token is None else self._token.expires_at_ms
            is_valid = now < expires_at_ms
            # The answer of a token endpoint could repeat a secret.
            self._failure = e.with_text(self._without_secrets(e.what), e.remedy)
            self._renew_at_ms = min(now + _RETRY_MS, expires_at_ms) if is_valid else now + _RETRY_WITHOUT_TOKEN_MS
            if is_valid:
                logger.warning("The token could not be renewed, and is used until it expires: %s", self._failure)
            return
        self._token, self._failure = token, None
        self._renew_at_ms = renew_at_ms(now, token.expires_at_ms)

    def _call_provider(self) -> object:
        try:
            return self._obtain()
        except StreamGroupsError:
            raise
        except (Exception, SystemExit) as e:
            # A function that was a script can call sys.exit. It would end a thread of this library without an error.
            where = traceback.extract_tb(e.__traceback__)[-1]
            cause = f"{type(e).__name__}: {e}".rstrip(".")
            at = f"{os.path.basename(where.filename)}, line {where.lineno}"
        # Raised outside the handler: the chain of errors could contain a secret of the provider.
        raise TokenUnavailable(
            f"{self._name} raised {cause} ({at}).",
            remedy="Correct the function, or what it depends on: credentials, network and clock of this machine.",
        )

    def _without_secrets(self, text: str) -> str:
        text = self._redact(text)
        return text.replace(self._token.token, "***") if self._token is not None else text


def token_source(properties: Mapping[str, str], redact: Callable[[str], str]) -> TokenSource | None:
    """Returns the source of tokens for a configuration. All clients of a process with the same settings share it.

    Args:
        properties: the properties of a :class:`~streamgroups_kafka.client.config.ClientConfig`.
        redact: removes its secrets from a text.

    Returns:
        The source. ``None`` if the mechanism is not OAUTHBEARER, or if only librdkafka supports the method.

    >>> token_source({"sasl.mechanism": "PLAIN"}, str) is None
    True
    """
    if properties.get("sasl.mechanism") != "OAUTHBEARER":
        return None
    key = tuple(sorted((n, v) for n, v in properties.items() if n.startswith(("sasl.oauthbearer.", "https."))))
    with _LOCK:
        source = _SOURCES.get(key)
        if source is None and (made := _new_source(properties, redact)) is not None:
            source = _SOURCES[key] = made
    return source


def _new_source(properties: Mapping[str, str], redact: Callable[[str], str]) -> TokenSource | None:
    if provider := properties.get(PROVIDER):
        return TokenSource(f"The token provider '{provider}'", lambda: _imported(provider)(), redact)
    if ClientCredentials.are_in(properties):
        credentials = ClientCredentials(properties)
        return TokenSource(f"The token endpoint {redact(credentials.url)}", credentials.request, redact)
    return None


def _imported(provider: str) -> Callable[[], Any]:
    module_name, _, function_name = provider.partition(":")
    option = f"Option 'kafka.{PROVIDER}'"
    try:
        module = importlib.import_module(module_name)
    except Exception as e:
        why = f"{type(e).__name__}: {e}".rstrip(".")
    else:
        function = getattr(module, function_name, None)
        if callable(function):
            found: Callable[[], Any] = function
            return found
        raise InvalidOption(
            f"{option}: the module '{module_name}' has no function '{function_name}'.",
            remedy="Set it to package.module:function.",
        )
    # Raised outside the handler, as all errors of a provider.
    raise InvalidOption(
        f"{option}: the module '{module_name}' cannot be imported on this machine ({why}).",
        remedy="Install it for the Python of the driver and of all executors.",
    )


_SOURCES: dict[tuple[tuple[str, str], ...], TokenSource] = {}
_LOCK = threading.Lock()


def _forget() -> None:
    """A child process has its own sources: another thread of its parent may hold a lock."""
    global _LOCK
    _LOCK = threading.Lock()
    _SOURCES.clear()


os.register_at_fork(after_in_child=_forget)
