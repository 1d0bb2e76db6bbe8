"""Brokers with one listener for each authentication: without login, with a login, tokens, TLS, and mutual TLS; and one
with a wrong advertised address.

Used by tests, which write the certificates and stores of the clients with Java's ``keytool``. Source: Kafka's
documentation, "Security".
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streamgroups_broker import EmbeddedKafka
from streamgroups_broker._data_dir import Cluster, DataDir, new_id
from streamgroups_broker._java import find_java
from streamgroups_broker._ports import free_ports
from streamgroups_broker.embedded import FAST_START
from streamgroups_testkit.waits import wait_until

if TYPE_CHECKING:
    from integration_tests.token_issuer import TokenIssuer

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
#: The settings of a client that logs in as ann.
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="ann" password="right horse";',
}
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
FAR_AWAY = "kafka.invalid:9092"
STORE_PASSWORD, KEY_PASSWORD = "store-password", "key-password"


class Listeners(NamedTuple):
    """The addresses of the listeners of one broker."""

    kafka: EmbeddedKafka
    #: All operations are permitted.
    plain: str
    #: Its advertised listener is FAR_AWAY.
    misled: str
    #: Requires a login; the user ann may only connect.
    login: str
    tls: str
    certificate: Path

    def allow(
        self, user: str, operation: AclOperation, kind: ResourceType, name: str, *, prefixed: bool = False
    ) -> None:
        """Grants an operation on a resource, and returns when the broker applies it.

        Args:
            user: the user, without ``User:``.
            operation: the operation.
            kind: the type of the resource.
            name: its name, or the prefix of names.
            prefixed: whether ``name`` is a prefix.
        """
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        resource = kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        admin = AdminClient({"bootstrap.servers": self.plain})
        for granted in admin.create_acls([AclBinding(*resource)]).values():
            granted.result(30)
        wait_until(lambda: bool(admin.describe_acls(AclBindingFilter(*resource)).result(30)), "the ACL applies")

    def revoke(self, user: str, name: str) -> None:
        """Removes all ACLs of a user on the resources of this name, and returns when the broker applies it.

        Args:
            user: the user, without ``User:``.
            name: the name of the resources, or the prefix of their names.
        """
        every = AclBindingFilter(
            ResourceType.ANY,
            name,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = AdminClient({"bootstrap.servers": self.plain})
        for deleted in admin.delete_acls([every]).values():
            deleted.result(30)
        wait_until(lambda: not admin.describe_acls(every).result(30), "no ACL applies")


class TlsListeners(NamedTuple):
    """The addresses of the listeners of a broker that requires certificates, and the stores of a client."""

    kafka: EmbeddedKafka
    #: Without TLS.
    plain: str
    #: Requires a certificate of the client.
    mutual: str
    #: TLS, and a login with SCRAM-SHA-512. It has no users yet.
    scram: str
    #: ``trust`` and ``client`` with the extensions ``pem``, ``p12`` and ``jks``.
    stores: Path


@contextmanager
def secured_broker(directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Listeners]:
    """A broker whose super user needs no login. Its data and certificates are in an empty directory.

    Args:
        directory: the directory.
        more: further properties of the broker.
    """
    store, certificate = _key_pair(directory, "broker")
    protocols = {"PLAINTEXT": "PLAINTEXT", "MISLED": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "TLS": "SSL"}
    properties = {
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} user_ann="right horse";',
        **_store("tls", "keystore", "PKCS12", store),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        **more,
    }
    with _broker(directory, protocols, properties, {"MISLED": FAR_AWAY}) as (kafka, at):
        yield Listeners(kafka, at["PLAINTEXT"], at["MISLED"], at["LOGIN"], at["TLS"], certificate)


@contextmanager
def tls_broker(directory: Path) -> Iterator[TlsListeners]:
    """A broker that requires certificates of its clients, with the stores of one client in all types.

    The password of all stores is ``STORE_PASSWORD``, and that of the keys in PEM and JKS is ``KEY_PASSWORD``.
    """
    store, _ = _key_pair(directory, "broker")
    trusted = _client_stores(directory)
    protocols = {"PLAINTEXT": "PLAINTEXT", "MUTUAL": "SSL", "SCRAM": "SASL_SSL"}
    properties = {
        **_store("mutual", "keystore", "PKCS12", store),
        **_store("scram", "keystore", "PKCS12", store),
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(trusted),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    }
    with _broker(directory, protocols, properties, {}) as (kafka, at):
        yield TlsListeners(kafka, at["PLAINTEXT"], at["MUTUAL"], at["SCRAM"], directory)


class TokenListeners(NamedTuple):
    """The addresses of the listeners of a broker that accepts tokens of one issuer."""

    kafka: EmbeddedKafka
    #: Without a login.
    plain: str
    #: OAUTHBEARER.
    tokens: str
    #: OAUTHBEARER over TLS.
    tokens_over_tls: str
    certificate: Path


@contextmanager
def token_broker(directory: Path, issuer: TokenIssuer) -> Iterator[TokenListeners]:
    """A broker whose listeners for tokens verify those of an issuer with Kafka's own validator (KIP-768)."""
    store, certificate = _key_pair(directory, "broker")
    properties = {**_validator("tokens", issuer), **_validator("tls_tokens", issuer)}
    properties |= _store("tls_tokens", "keystore", "PKCS12", store)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
    protocols = {"PLAINTEXT": "PLAINTEXT", "TOKENS": "SASL_PLAINTEXT", "TLS_TOKENS": "SASL_SSL"}
    with _broker(directory, protocols, properties, {}, (allowed,)) as (kafka, at):
        yield TokenListeners(kafka, at["PLAINTEXT"], at["TOKENS"], at["TLS_TOKENS"], certificate)


def _validator(listener: str, issuer: TokenIssuer) -> dict[str, str]:
    """The properties of a listener that accepts the tokens of an issuer."""
    sasl = f"listener.name.{listener}.oauthbearer.sasl"
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{sasl}.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{sasl}.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{sasl}.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
        f"{sasl}.oauthbearer.expected.audience": issuer.audience,
        f"{sasl}.oauthbearer.expected.issuer": issuer.name,
    }


@contextmanager
def _broker(
    directory: Path,
    protocols: Mapping[str, str],
    properties: Mapping[str, str],
    advertised: Mapping[str, str],
    jvm_options: Sequence[str] = (),
) -> Iterator[tuple[EmbeddedKafka, dict[str, str]]]:
    """A broker with these listeners; the first one is PLAINTEXT. Returns their addresses by name."""
    *ports, controller = free_ports(len(protocols) + 1)
    # The controller's port must be fixed, because the property lists all listeners together.
    data = DataDir(directory / "kafka")
    data.save(Cluster(new_id(), 1, tuple(ports[:1]), (controller,)))
    data.close()
    at = {name: f"127.0.0.1:{port}" for name, port in zip(protocols, ports, strict=True)}
    listeners = {
        "listeners": _joined("://", {**at, "CONTROLLER": f"127.0.0.1:{controller}"}),
        "advertised.listeners": _joined("://", {**at, **advertised}),
        "listener.security.protocol.map": _joined(":", {**protocols, "CONTROLLER": "PLAINTEXT"}),
    }
    with EmbeddedKafka(
        data_dir=directory / "kafka",
        ports=tuple(ports[:1]),
        properties={**listeners, **properties},
        jvm_options=(*FAST_START, *jvm_options),
    ) as kafka:
        yield kafka, at


def _joined(separator: str, pairs: Mapping[str, str]) -> str:
    return ",".join(f"{name}{separator}{value}" for name, value in pairs.items())


def _store(listener: str, store: str, kind: str, path: Path) -> dict[str, str]:
    prefix = f"listener.name.{listener}.ssl.{store}"
    return {f"{prefix}.type": kind, f"{prefix}.location": str(path), f"{prefix}.password": STORE_PASSWORD}


def _key_pair(directory: Path, name: str) -> tuple[Path, Path]:
    """A PKCS12 key store, and its certificate in PEM."""
    store, certificate = directory / f"{name}.p12", directory / f"{name}.pem"
    access = ["-keystore", str(store), "-storepass", STORE_PASSWORD, "-alias", name]
    subject = ["-dname", f"CN={name}", "-ext", "SAN=ip:127.0.0.1", "-validity", "2"]
    _keytool("-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", *subject, *access)
    _keytool("-exportcert", "-rfc", "-file", str(certificate), *access)
    return store, certificate


def _client_stores(directory: Path) -> Path:
    """Writes the stores of a client that trusts the broker. Returns the certificate of the client."""
    # Imported late: the other broker does not need the package.
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    store, certificate = _key_pair(directory, "client")
    certificate = certificate.rename(directory / "certificate.pem")
    source = ["-srckeystore", str(store), "-srcstoretype", "PKCS12", "-srcstorepass", STORE_PASSWORD]
    target = ["-destkeystore", str(directory / "client.jks"), "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD]
    _keytool("-importkeystore", "-srcalias", "client", "-destkeypass", KEY_PASSWORD, *source, *target)
    for extension, kind in (("p12", "PKCS12"), ("jks", "JKS")):
        trust = ["-keystore", str(directory / f"trust.{extension}"), "-storetype", kind, "-storepass", STORE_PASSWORD]
        _keytool("-importcert", "-noprompt", "-alias", "broker", "-file", str(directory / "broker.pem"), *trust)
    shutil.copy(directory / "broker.pem", directory / "trust.pem")
    key, _, _ = load_key_and_certificates(store.read_bytes(), STORE_PASSWORD.encode())
    assert key is not None
    protected = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
    (directory / "client.pem").write_bytes(protected + certificate.read_bytes())
    return certificate


def _keytool(*arguments: str) -> None:
    """The tool of the Java that runs the broker."""
    tool = Path(find_java().executable).resolve().with_name("keytool")
    subprocess.run([tool, *arguments], check=True, capture_output=True)
