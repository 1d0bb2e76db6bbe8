"""PKCS12 and JKS stores, which Java's keytool has written, become PEM for both clients, and errors show no secret."""

from __future__ import annotations

import random
import shutil
import ssl
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from streamgroups.errors import InvalidOption, MissingExtra
from streamgroups_kafka.client import key_stores
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.key_stores import UnreadableStore, read_jks
from streamgroups_kafka.client.tls import tls_context

STORES = Path(__file__).parents[1] / "golden" / "key_stores"
PASSWORD, KEY_PASSWORD = "store-password", "key-password"
TLS = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}


def options(store: str, path: Path | str, password: str | None = PASSWORD, **more: str) -> dict[str, str]:
    given = {f"ssl.{store}.location": str(path), **{f"ssl.{store}.{name}": value for name, value in more.items()}}
    return given if password is None else {**given, f"ssl.{store}.password": password}


@pytest.mark.parametrize("file", ["trust.jks", "trust.p12"])
@pytest.mark.parametrize("kind", [{}, {"type": "JKS"}, {"type": "pkcs12"}])
def test_a_trust_store_is_known_by_its_content(file: str, kind: dict[str, str]) -> None:
    config = ClientConfig.from_options({**TLS, **options("truststore", STORES / file, **kind)})
    for settings in (config.for_member("g"), config.for_reader("g"), config.for_admin()):
        assert settings["ssl.ca.pem"].split() == (STORES / "client.pem").read_text().split()
        assert not key_stores.BINARY_STORES & settings.keys()
    context = tls_context(config)
    assert context is not None
    assert context.cert_store_stats()["x509"] == 1


def test_a_jks_trust_store_needs_no_password() -> None:
    config = ClientConfig.from_options({**TLS, **options("truststore", STORES / "trust.jks", None)})
    assert "BEGIN CERTIFICATE" in config.for_admin()["ssl.ca.pem"]


@pytest.mark.parametrize("file", ["key.jks", "key.p12"])
def test_a_key_store_is_the_certificate_of_both_clients(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_key = {"ssl.key.password": KEY_PASSWORD} if file == "key.jks" else {}
    config = ClientConfig.from_options({**TLS, **options("keystore", STORES / file), **of_key})
    settings = config.for_reader("g")
    certificate = x509.load_pem_x509_certificate(settings["ssl.certificate.pem"].encode())
    key = load_pem_private_key(settings["ssl.key.pem"].encode(), None)
    assert key.public_key() == certificate.public_key()
    assert "ssl.key.password" not in settings
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *given, **_: loaded.append(given))
    tls_context(config)
    assert len(loaded) == 1


def test_the_content_is_neither_kept_nor_printed_nor_pickled() -> None:
    config = ClientConfig.from_options(
        {**TLS, **options("keystore", STORES / "key.jks"), "ssl.key.password": KEY_PASSWORD}
    )
    body = config.for_admin()["ssl.key.pem"].splitlines()[1]
    assert body not in str(config.properties)
    assert not any(secret in repr(config) for secret in (PASSWORD, KEY_PASSWORD, body))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            options("truststore", STORES / "trust.jks", "wrong-password"),
            "the password is wrong, or the file is damaged",
        ),
        (
            options("truststore", STORES / "trust.p12", "wrong-password"),
            "the password is wrong, or the file is neither",
        ),
        (options("truststore", STORES / "trust.p12", None), "the password is wrong"),
        (options("truststore", STORES / "client.pem"), "it is PEM; set 'kafka.ssl.truststore.type' to PEM"),
        (options("truststore", "/does/not/exist"), "on this machine: No such file or directory.*each executor"),
        (options("truststore", "/a", type="BCFKS"), "Set it to PEM, PKCS12 or JKS"),
        (options("truststore", STORES / "key.jks"), "it contains no certificate"),
        (options("keystore", STORES / "trust.jks"), "it contains no private key"),
        (options("keystore", STORES / "key.jks"), r"the password of the key is wrong \('kafka.ssl.key.password'\)"),
        (options("keystore", STORES / "key.jks", "wrong-password"), "the password is wrong"),
    ],
)
def test_errors_name_the_store_and_no_password(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        ClientConfig.from_options({**TLS, **given})
    assert "password'" in str(caught.value) or "-password" not in str(caught.value)
    assert "wrong-password" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copy(STORES / "trust.jks", store)
    config = ClientConfig.from_options({**TLS, **options("truststore", store)})
    store.write_bytes(b"damaged")
    with pytest.raises(InvalidOption, match="neither PKCS12 nor JKS"):
        config.for_admin()


def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    key_stores._decoded.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[keystores\]'"):
        ClientConfig.from_options({**TLS, **options("truststore", STORES / "trust.jks")})


def test_a_spoiled_store_is_rejected() -> None:
    data, chance = (STORES / "key.jks").read_bytes(), random.Random(7)
    for _ in range(2_000):
        spoiled = bytearray(data)
        spoiled[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with pytest.raises(UnreadableStore):
            read_jks(bytes(spoiled), PASSWORD, KEY_PASSWORD)
        # Without a password the store is not verified, as in Java.
        with suppress(UnreadableStore):
            read_jks(bytes(spoiled[: chance.randrange(len(data))]), None)
