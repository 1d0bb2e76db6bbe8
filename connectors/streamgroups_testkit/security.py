"""A broker with one listener for each authentication: without login, with a login, and TLS; and one with a wrong
advertised address.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from streamgroups_broker import EmbeddedKafka
from streamgroups_broker._data_dir import Cluster, DataDir, new_id
from streamgroups_broker._java import find_java
from streamgroups_broker._ports import free_ports

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
FAR_AWAY = "kafka.invalid:9092"


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


@contextmanager
def secured_broker(directory: Path) -> Iterator[Listeners]:
    """A broker whose super user needs no login. Its data and certificates are in an empty directory."""
    store, certificate = _certificate(directory)
    ports = free_ports(5)
    # The controller's port must be fixed, because the property lists all listeners together.
    data = DataDir(directory / "kafka")
    data.save(Cluster(new_id(), 1, ports[:1], ports[4:]))
    data.close()
    plain, misled, login, tls, controller = (f"127.0.0.1:{port}" for port in ports)
    properties = {
        "listeners": f"PLAINTEXT://{plain},MISLED://{misled},LOGIN://{login},TLS://{tls},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain},MISLED://{FAR_AWAY},LOGIN://{login},TLS://{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MISLED:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} user_ann="right horse";',
        "listener.name.tls.ssl.keystore.type": "PKCS12",
        "listener.name.tls.ssl.keystore.location": str(store),
        "listener.name.tls.ssl.keystore.password": "store-password",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedKafka(data_dir=directory / "kafka", ports=ports[:1], properties=properties) as kafka:
        yield Listeners(kafka, plain, misled, login, tls, certificate)


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A key store for the broker and its certificate for clients, created by the Java that runs the broker."""
    keytool = Path(find_java().executable).resolve().with_name("keytool")
    store, certificate = directory / "broker.p12", directory / "broker.pem"
    access = ["-keystore", str(store), "-storepass", "store-password", "-alias", "broker"]
    name = ["-dname", "CN=broker", "-ext", "SAN=ip:127.0.0.1", "-validity", "2"]
    made = ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", *name]
    subprocess.run([keytool, *made, *access], check=True, capture_output=True)
    subprocess.run([keytool, "-exportcert", "-rfc", "-file", certificate, *access], check=True, capture_output=True)
    return store, certificate
