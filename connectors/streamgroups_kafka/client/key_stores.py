"""Java's trust stores and key stores (PKCS12, JKS), as PEM in memory.

:class:`~streamgroups_kafka.client.config.ClientConfig` calls it when a client is created, so each process reads the files
on its own machine: driver and executors. librdkafka and Python's ``ssl`` read PEM, and neither reads all types of Java.
Source: Java's ``KeyStore``; types are detected by content, as its ``keystore.type.compat`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups_kafka.client.jaas import words
from streamgroups_kafka.client.java_keystore import MAGIC, UnreadableStore, read_jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

#: The settings of binary stores, which no client reads.
BINARY_STORES = words(
    """
    ssl.truststore.location ssl.truststore.type ssl.truststore.password ssl.keystore.location ssl.keystore.type
    ssl.keystore.password
    """
)


def pem_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Reads the binary stores of a configuration.

    Args:
        properties: the properties of a client.

    Returns:
        librdkafka's properties with the content of the stores. They contain a private key: do not print them.

    Raises:
        InvalidOption: if a file cannot be read on this machine, its password is wrong, or it lacks a key or certificate.
        MissingExtra: without the package cryptography.

    >>> pem_properties({"security.protocol": "ssl"})
    {}
    """
    found: dict[str, str] = {}
    if path := properties.get("ssl.truststore.location"):
        _, certificates = _read("truststore", path, properties.get("ssl.truststore.password"), None)
        if not certificates:
            raise _unreadable("truststore", path, "it contains no certificate")
        found["ssl.ca.pem"] = certificates
    if path := properties.get("ssl.keystore.location"):
        key, chain = _read(
            "keystore", path, properties.get("ssl.keystore.password"), properties.get("ssl.key.password")
        )
        if not key:
            raise _unreadable("keystore", path, "it contains no private key that this password opens")
        found |= {"ssl.key.pem": key, "ssl.certificate.pem": chain}
    return found


def _read(store: str, path: str, password: str | None, key_password: str | None) -> tuple[str, str]:
    """Returns a private key and the certificates of a store; the own certificate of a key is first."""
    try:
        status = os.stat(path)
        return _decoded(store, path, password, key_password, (status.st_mtime_ns, status.st_size))
    except OSError as e:
        why = e.strerror or type(e).__name__
    except UnreadableStore as e:
        why = str(e)
    # Raised outside the handlers: the cause is not needed, and may contain a part of the file.
    raise _unreadable(store, path, why)


@lru_cache(maxsize=8)
def _decoded(
    store: str, path: str, password: str | None, key_password: str | None, version: tuple[int, int]
) -> tuple[str, str]:
    # A client is created for many requests, and the key of a PKCS12 store is derived in 10,000 rounds.
    with open(path, "rb") as file:
        data = file.read()
    if data.lstrip().startswith(b"-----BEGIN"):
        raise UnreadableStore(f"it is PEM; set 'kafka.ssl.{store}.type' to PEM")
    try:
        if data.startswith(MAGIC):
            return _from_jks(data, password, key_password, with_keys=store == "keystore")
        return _from_pkcs12(data, password)
    except ImportError as e:
        raise explained(e, f"A {store} of type PKCS12 or JKS") from e


def _from_jks(data: bytes, password: str | None, key_password: str | None, *, with_keys: bool) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    content = read_jks(data, password, key_password, with_keys=with_keys)
    try:
        certificates = [x509.load_der_x509_certificate(der) for der in content.certificates]
        if not content.keys:
            return "", _pem_of(certificates)
        key, chain = content.keys[0]
        own = [x509.load_der_x509_certificate(der) for der in chain]
        return _pem_of_key(load_der_private_key(key, None)), _pem_of(own + certificates)
    except ValueError:
        raise UnreadableStore("a key or certificate in it is not valid") from None


def _from_pkcs12(data: bytes, password: str | None) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        content = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise UnreadableStore("the password is wrong, or the file is neither PKCS12 nor JKS") from None
    own = [content.cert.certificate] if content.cert is not None else []
    certificates = own + [other.certificate for other in content.additional_certs]
    return "" if content.key is None else _pem_of_key(content.key), _pem_of(certificates)


def _pem_of(certificates: Iterable[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _pem_of_key(key: PrivateKeyTypes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _unreadable(store: str, path: str, why: str) -> InvalidOption:
    return InvalidOption(
        f"Option 'kafka.ssl.{store}.location': {path} cannot be used on this machine: {why.rstrip('.')}.",
        remedy=f"Check the file and 'kafka.ssl.{store}.password'. The driver and each executor read the file: it must be "
        "at the same path on all of them.",
    )
