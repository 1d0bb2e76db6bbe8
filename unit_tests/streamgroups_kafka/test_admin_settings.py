"""What admin requests cannot log in with is rejected when the options are read; a bad token is no login."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from streamgroups.errors import InvalidOption, LoginRejected
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin import unsupported_requests
from streamgroups_kafka.admin.connection_settings import admin_settings
from streamgroups_kafka.client.config import ClientConfig

OAUTH = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
}
METADATA_SERVICE = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}
CLIENT = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "hunter2"}


def config(*parts: dict[str, str]) -> ClientConfig:
    return ClientConfig(
        tuple(sorted({name: value for part in (OAUTH, *parts) for name, value in part.items()}.items()))
    )


def test_a_metadata_service_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="support only client credentials and token providers"):
        admin_settings(config(METADATA_SERVICE, ENDPOINT), timeout_s=1)


def test_sizes_are_a_nicety(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("hunter2")

    monkeypatch.setattr(unsupported_requests, "AdminSession", fail)
    assert unsupported_requests.stored_bytes(config(ENDPOINT, CLIENT), [TopicPartition("t", 0)]) == {}
    assert "KeyError" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.fixture
def endpoint() -> Iterator[tuple[str, dict[str, object]]]:
    granted: dict[str, object] = {}

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps(granted).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/token", granted
        server.shutdown()


@pytest.mark.parametrize("expires_in", ["soon", None, [], {}])
def test_a_token_whose_end_is_not_known_is_no_login(
    endpoint: tuple[str, dict[str, object]], expires_in: object
) -> None:
    url, granted = endpoint
    granted.update(access_token="t", expires_in=expires_in)
    other = {"sasl.oauthbearer.token.endpoint.url": url, "sasl.oauthbearer.scope": repr(expires_in)}
    with pytest.raises(LoginRejected, match="The token endpoint returned no token"):
        admin_settings(config(CLIENT, other), timeout_s=1)
    granted.update(expires_in="3600")
    other["sasl.oauthbearer.scope"] += "again"
    settings = admin_settings(config(CLIENT, other), timeout_s=1)
    assert settings["sasl_oauth_token_provider"].token() == "t"
