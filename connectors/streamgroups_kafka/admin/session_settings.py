"""Translates a checked client configuration for ``kafka-python``.

Called by :mod:`streamgroups_kafka.admin.session`. All other modules use librdkafka. Group administration needs requests
that librdkafka does not have: OffsetFetch of many groups (KIP-709) and OffsetDelete (KIP-496). So
:class:`ClientConfig`, which has librdkafka's names, is translated again.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from streamgroups.errors import InvalidOption, NotAuthorized
from streamgroups_kafka.admin.sockets import DIRECT, ClosingTlsSocket
from streamgroups_kafka.client.config import RECONNECT_MAX_MS, ClientConfig
from streamgroups_kafka.client.tls import tls_context

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_TOKEN_TIMEOUT_S = 10.0
#: How long before its expiry a token is renewed.
_TOKEN_MARGIN_S = 30.0


def admin_settings(config: ClientConfig, *, timeout_s: float) -> dict[str, Any]:
    """Returns keyword arguments for the clients of ``kafka-python``.

    Args:
        config: the configuration of the client.
        timeout_s: the timeout of one request, in seconds.

    Returns:
        The arguments. They contain secrets: do not print them.

    Raises:
        InvalidOption: if the configuration needs a feature that only librdkafka has.

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
        "proxy_url": DIRECT,
        "client_id": properties.get("client.id", "streamgroups-admin"),
        "security_protocol": protocol,
        "request_timeout_ms": timeout_ms,
        "socket_connection_setup_timeout_ms": timeout_ms,
        # The default backoff is up to 30 s, longer than the timeouts of admin requests.
        "reconnect_backoff_max_ms": int(properties.get("reconnect.backoff.max.ms", RECONNECT_MAX_MS)),
        # Admin responses grow with the cluster. Requests to one broker are pipelined.
        "receive_message_max_bytes": 1_000_000_000,
        "max_in_flight_requests_per_connection": 64,
    }
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = _tls(config)
    if protocol.startswith("SASL_"):
        settings.update(_login(properties))
    return settings


def _tls(config: ClientConfig) -> ssl.SSLContext | None:
    try:
        context = tls_context(config)
        if context is not None:
            context.sslsocket_class = ClosingTlsSocket
        return context
    except (OSError, ValueError) as e:
        said = getattr(e, "strerror", None) or "not valid PEM"
    # Neither contains nor chains the cause, which could contain a line of a key.
    raise InvalidOption(
        f"The 'kafka.ssl.' options are invalid: {said}.",
        remedy="Check that the files exist and are PEM, and that the password is correct.",
    )


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
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
        settings["sasl_oauth_token_provider"] = _ClientCredentials(properties)
    return settings


class _ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Gets tokens as librdkafka's ``sasl.oauthbearer.method=oidc`` does (KIP-768): OAuth 2's client credentials."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__()
        if properties.get("sasl.oauthbearer.grant.type", "client_credentials").lower() != "client_credentials":
            raise InvalidOption(
                "Option 'kafka.sasl.oauthbearer.grant.type': this command supports only client credentials.",
                remedy="Set 'kafka.sasl.oauthbearer.client.id' and '.client.secret', or use another mechanism.",
            )
        if "sasl.oauthbearer.token.endpoint.url" not in properties:
            raise InvalidOption(
                "Option 'kafka.sasl.mechanism=OAUTHBEARER': this command requires a token endpoint.",
                remedy="Set 'kafka.sasl.oauthbearer.token.endpoint.url', '.client.id' and '.client.secret'.",
            )
        missing = [name for name in ("client.id", "client.secret") if not properties.get(f"sasl.oauthbearer.{name}")]
        if missing:
            # A metadata service (KIP-1139) authenticates the machine instead. Only librdkafka supports it.
            raise InvalidOption(
                f"Option 'kafka.sasl.oauthbearer.{missing[0]}' is missing: admin requests support only "
                "client credentials.",
                remedy="Set 'kafka.sasl.oauthbearer.client.id' and '.client.secret', or use another mechanism.",
            )
        import urllib.parse

        self._url = properties["sasl.oauthbearer.token.endpoint.url"]
        form = {
            "grant_type": "client_credentials",
            "client_id": properties["sasl.oauthbearer.client.id"],
            "client_secret": properties["sasl.oauthbearer.client.secret"],
        }
        if "sasl.oauthbearer.scope" in properties:
            form["scope"] = properties["sasl.oauthbearer.scope"]
        self._form = urllib.parse.urlencode(form).encode()
        pairs = filter(None, properties.get("sasl.oauthbearer.extensions", "").split(","))
        self._extensions = dict(pair.split("=", 1) for pair in pairs)
        self._token, self._valid_until_s = "", 0.0

    def token(self) -> str:
        """Returns a valid token."""
        # Imported late: the import is slow, and few configurations need it.
        import urllib.request

        if time.monotonic() > self._valid_until_s:
            try:
                with urllib.request.urlopen(self._url, self._form, _TOKEN_TIMEOUT_S) as answer:
                    granted = json.load(answer)
                self._token, expires_in_s = str(granted["access_token"]), float(granted.get("expires_in", 60))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
                raise NotAuthorized(
                    f"The token endpoint returned no token: {type(e).__name__}.",
                    remedy="Check 'kafka.sasl.oauthbearer.token.endpoint.url', '.client.id' and '.client.secret'.",
                ) from None
            self._valid_until_s = time.monotonic() + expires_in_s - _TOKEN_MARGIN_S
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that are sent with the token (KIP-342)."""
        return self._extensions
