"""All Python connections check certificates as librdkafka does, also with the stricter defaults of Python 3.13."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from streamgroups_kafka.client.client_credentials import ClientCredentials
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.tls import tls_context


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    default = ssl.create_default_context

    def create_default_context(**settings: Any) -> ssl.SSLContext:
        context = default(**settings)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)


def test_a_certificate_without_an_authority_key_identifier_is_accepted() -> None:
    brokers = tls_context(ClientConfig((("security.protocol", "ssl"),)))
    assert brokers is not None
    endpoint = ClientCredentials(
        {
            "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hunter2",
        }
    )._tls()
    for context in (brokers, endpoint):
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
