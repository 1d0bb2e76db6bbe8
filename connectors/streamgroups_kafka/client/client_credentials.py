"""OAuth 2.0 client credentials: requests a token from a token endpoint, as KIP-768 does.

Used by :mod:`streamgroups_kafka.client.token_providers`. Sources: RFC 6749 (sections 2.3.1, 4.4 and 5.2); Kafka's
``ClientCredentialsRequestFormatter``, which does not URL-encode id and secret; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamgroups.errors import LoginRejected, StreamGroupsError, TokenUnavailable
from streamgroups.json_values import read_json
from streamgroups.tokens import OAuthBearerToken
from streamgroups_kafka.client.clock import now_ms

if TYPE_CHECKING:
    import ssl
    import urllib.error

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_TIMEOUT_S = 10.0
#: The life time of a token without ``expires_in``, in seconds. It is optional in RFC 6749.
_DEFAULT_LIFE_S = 60.0
#: Responses with which a repeated request can succeed.
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_MAX_ANSWER_BYTES = 1 << 20
_MAX_REASON = 300


class ClientCredentials:
    """A client of one token endpoint.

    Args:
        properties: librdkafka's properties, for which :meth:`are_in` returns ``True``.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.url = properties[_URL]
        self._id, self._secret = properties[_ID], properties[_SECRET]
        self._scope = properties.get("sasl.oauthbearer.scope", "")
        self._ca_file, self._ca_pem = properties.get("https.ca.location"), properties.get("https.ca.pem")
        pairs = filter(None, properties.get("sasl.oauthbearer.extensions", "").split(","))
        self._extensions = dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    @staticmethod
    def are_in(properties: Mapping[str, str]) -> bool:
        """Whether properties contain a token endpoint and client credentials for it.

        >>> ClientCredentials.are_in({"sasl.oauthbearer.token.endpoint.url": "https://idp/token"})
        False
        """
        grant = properties.get("sasl.oauthbearer.grant.type", "client_credentials").lower()
        return grant == "client_credentials" and all(properties.get(name) for name in (_URL, _ID, _SECRET))

    def request(self) -> OAuthBearerToken:
        """Requests a token.

        Raises:
            TokenUnavailable: if the endpoint cannot be reached, or is overloaded.
            LoginRejected: if it rejects the client, or its answer contains no token.
        """
        # Imported late: the imports are slow, and few configurations need them.
        import urllib.error

        sent_ms = now_ms()
        try:
            answer = self._posted()
        except urllib.error.HTTPError as e:
            failure = self._rejected(e)
        except (OSError, ValueError) as e:
            # URLError is an OSError. ``http.client`` rejects a malformed URL with a ValueError.
            failure = self._unreachable(getattr(e, "reason", e))
        else:
            return self._token(answer, sent_ms)
        # Raised outside the handler: the request has the secret in a header.
        raise failure

    def _posted(self) -> bytes:
        import urllib.parse
        import urllib.request

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """A redirected request would send the secret to another server."""

            def redirect_request(self, *_: Any) -> None:
                return None

        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        login = base64.b64encode(f"{self._id}:{self._secret}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
        request = urllib.request.Request(self.url, urllib.parse.urlencode(form).encode(), headers)
        opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=self._tls()))
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read(_MAX_ANSWER_BYTES)
        return body

    def _tls(self) -> ssl.SSLContext:
        from streamgroups_kafka.client.default_tls import default_context

        location = None if self._ca_file == "probe" else self._ca_file
        return default_context(cafile=location or None, cadata=self._ca_pem or None)

    def _token(self, body: bytes, sent_ms: int) -> OAuthBearerToken:
        try:
            answer = read_json(body.decode())
            token, life_s = str(answer["access_token"]), float(answer.get("expires_in", _DEFAULT_LIFE_S))
            return OAuthBearerToken(token, sent_ms + int(life_s * 1000), self._id, self._extensions)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            why = type(e).__name__
        raise LoginRejected(
            f"The token endpoint returned no token: {why}.",
            remedy=f"Check 'kafka.{_URL}': it must be the token endpoint of an OAuth 2.0 server.",
        )

    def _rejected(self, error: urllib.error.HTTPError) -> StreamGroupsError:
        why = f"{error.code} {_reason(error)}".strip()
        if error.code == _TOO_MANY_REQUESTS or error.code >= _SERVER_ERROR:
            return self._unreachable(why)
        return LoginRejected(
            f"The token endpoint {self.url} rejects the client credentials ({why}).",
            remedy=f"Check 'kafka.{_ID}', 'kafka.{_SECRET}', 'kafka.sasl.oauthbearer.scope' and 'kafka.{_URL}'.",
        )

    def _unreachable(self, why: object) -> StreamGroupsError:
        return TokenUnavailable(
            f"The token endpoint {self.url} returned no token ({str(why).rstrip('.')}).",
            remedy=f"Check 'kafka.{_URL}', and that this machine can reach it. 'kafka.https.ca.location' names the "
            "certificates of its CA.",
        )


def _reason(error: urllib.error.HTTPError) -> str:
    """The error of an OAuth 2.0 server (RFC 6749, section 5.2), else the text of the status."""
    try:
        answer = read_json(error.read(_MAX_ANSWER_BYTES).decode())
        found = ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
    except (OSError, ValueError, TypeError, AttributeError):
        found = ""
    return (found or str(error.reason))[:_MAX_REASON]
