"""Translates a checked client configuration for ``kafka-python``.

Called by :mod:`streamgroups_kafka.admin.connection`. All other modules use librdkafka. Group administration needs requests
that librdkafka does not have: OffsetFetch of many groups (KIP-709) and OffsetDelete (KIP-496). So
:class:`ClientConfig`, which has librdkafka's names, is translated again.

After a rejected connection or a failed TLS handshake, ``kafka-python`` leaves the socket to the garbage collector. So each
attempt leaks a file descriptor while a broker is down. It does the same with a handshake that is in progress when the
session ends. It does not catch the error of Python for an invalid name of a host. It accepts custom sockets as a scheme of ``proxy_url`` (``kafka.net.KafkaNetSocket``) and as the socket class of
an ``ssl.SSLContext``, and a selector as the setting ``selector``. Source: ``kafka.net`` of ``kafka-python``.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups_kafka.client.config import RECONNECT_MAX_MS, ClientConfig
from streamgroups_kafka.client.jaas import PROVIDER
from streamgroups_kafka.client.private_kafka_python import AbstractTokenProvider, KafkaNetSocket
from streamgroups_kafka.client.tls import tls_context
from streamgroups_kafka.client.token_providers import TokenSource

#: A ``proxy_url`` without a proxy, but with the sockets of this module.
_DIRECT = "direct://"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def admin_settings(config: ClientConfig, *, timeout_s: float) -> dict[str, Any]:
    """Returns keyword arguments for the clients of ``kafka-python``.

    Args:
        config: the configuration of the client.
        timeout_s: the timeout of one request, in seconds.

    Returns:
        The arguments. They contain secrets: do not print them.

    Raises:
        InvalidOption: if the configuration needs a feature that only librdkafka has.
        TokenUnavailable: if there is no token for OAUTHBEARER.
        LoginRejected: if the token endpoint rejects the client.

    >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
    >>> settings = admin_settings(config, timeout_s=2)
    >>> settings["bootstrap_servers"], settings["security_protocol"], settings["request_timeout_ms"]
    (['broker:9092'], 'PLAINTEXT', 2000)
    >>> settings["reconnect_backoff_max_ms"]
    1000
    """
    properties = dict(config.properties)
    protocol = properties.get("security.protocol", "plaintext").upper()
    timeout_ms = int(timeout_s * 1000)
    settings: dict[str, Any] = {
        "bootstrap_servers": properties["bootstrap.servers"].split(","),
        "proxy_url": _DIRECT,
        "selector": _ClosingSelector,
        "client_id": properties.get("client.id", "streamgroups-admin"),
        "security_protocol": protocol,
        "request_timeout_ms": timeout_ms,
        "socket_connection_setup_timeout_ms": timeout_ms,
        # The default backoff is up to 30 s, longer than the timeouts of admin requests.
        "reconnect_backoff_max_ms": int(properties.get("reconnect.backoff.max.ms", RECONNECT_MAX_MS)),
        # The default of librdkafka. The client reserves the memory that a peer announces, before any login.
        "receive_message_max_bytes": int(properties.get("receive.message.max.bytes", 100_000_000)),
        # Requests to one broker are pipelined.
        "max_in_flight_requests_per_connection": 64,
    }
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = _tls(config)
    if protocol.startswith("SASL_"):
        settings.update(_login(config))
    return settings


def _tls(config: ClientConfig) -> ssl.SSLContext | None:
    try:
        context = tls_context(config)
        if context is not None:
            context.sslsocket_class = _ClosingTlsSocket
        return context
    except (OSError, ValueError) as e:
        cause = getattr(e, "strerror", None) or "not valid PEM"
    # Neither contains nor chains the cause, which could contain a line of a key.
    raise InvalidOption(
        f"The 'kafka.ssl.' options are invalid: {cause}.",
        remedy="Check that the files exist and are PEM, and that the password is correct.",
    )


def _login(config: ClientConfig) -> dict[str, Any]:
    properties = dict(config.properties)
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise InvalidOption(
            f"Option 'kafka.sasl.mechanism' is '{mechanism}', which this command does not support.",
            remedy=f"Use {', '.join(_MECHANISMS)}.",
        )
    settings: dict[str, Any] = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties.get("sasl.username"),
        "sasl_plain_password": properties.get("sasl.password"),
        "sasl_kerberos_service_name": properties.get("sasl.kerberos.service.name", "kafka"),
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _tokens(config)
    return settings


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The tokens of a source, in the interface of ``kafka-python``, which calls it for each connection."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        """Returns a valid token."""
        return self._source.current().token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that are sent with the token (KIP-342)."""
        return dict(self._source.current().extensions)


def _tokens(config: ClientConfig) -> _Tokens:
    source = config.tokens
    if source is None:
        # A metadata service (KIP-1139) or a signed assertion. Only librdkafka supports them.
        raise InvalidOption(
            "Option 'kafka.sasl.mechanism=OAUTHBEARER': commands and transactions support only client credentials "
            "and token providers.",
            remedy="Set 'kafka.sasl.oauthbearer.token.endpoint.url', '.client.id' and '.client.secret', or "
            f"'kafka.{PROVIDER}'.",
        )
    # The reason of a failure is reported now. A connection would be retried.
    source.current()
    return _Tokens(source)


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> Any:
        try:
            return super().dns_lookup(host, port, raise_error)
        except UnicodeError:
            # An empty or a long label in a name. kafka-python expects no addresses for an unknown host.
            return []

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:  # also when the attempt is cancelled
            sock.close()
            raise


class _ClosingTlsSocket(ssl.SSLSocket):
    """A TLS connection that is closed when its handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        """As in ``ssl``. A handshake that needs more data is not a failure."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException:
            self.close()
            raise


class _ClosingSelector(selectors.DefaultSelector):
    """A selector whose end closes all sockets that were registered.

    A session closes its selector last, so no socket is in use then.
    """

    def __init__(self) -> None:
        super().__init__()
        # References that keep the sockets alive: the end of a coroutine drops its own one without closing the socket.
        self._registered: set[Any] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As in ``selectors``."""
        self._registered = {it for it in self._registered if it.fileno() != -1} | {fileobj}
        return super().register(fileobj, events, data)

    def close(self) -> None:
        """Closes the selector, then the sockets."""
        super().close()
        for registered in self._registered:
            registered.close()
