"""Java's trust stores and key stores (PKCS12, JKS), as PEM in memory.

:class:`~streamgroups_kafka.client.config.ClientConfig` calls it when a client is created, so each process reads the files
on its own machine: driver and executors. librdkafka and Python's ``ssl`` read PEM, and neither reads all types of Java.
Source: Java's ``KeyStore``; types are detected by content, as its ``keystore.type.compat`` does.

No kept library reads JKS: pyjks has had no release since 2020 and needs a compiler, and its fork adds a second cryptography
package. The format has not changed since 1998. Source: the classes ``JavaKeyStore`` and ``KeyProtector`` of OpenJDK
(``sun.security.provider``).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups_kafka.client.jaas import words

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
MAGIC = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_SIZE = 20
#: DER of the algorithm of all protected keys: 1.3.6.1.4.1.42.2.17.1.1, without parameters.
_ALGORITHM = bytes.fromhex("300e060a2b060104012a021101010500")


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


class UnreadableStore(Exception):
    """The store is damaged, or the password is wrong. The text contains neither."""


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The content of a store, in DER.

    Args:
        keys: for each private key, its PKCS8 form and its certificates, the own one first.
        certificates: the trusted certificates.
    """

    keys: tuple[tuple[bytes, tuple[bytes, ...]], ...] = field(repr=False)
    certificates: tuple[bytes, ...] = field(repr=False)


def read_jks(
    data: bytes, password: str | None, key_password: str | None = None, *, with_keys: bool = True
) -> JavaKeyStore:
    """Decodes a store.

    Args:
        data: the content of the file.
        password: the password of the store. Without one, as in Java, the store is not verified and no key is read.
        key_password: the password of the keys; default: that of the store.
        with_keys: whether to read private keys. A trust store needs none.

    Raises:
        UnreadableStore: if the content is not a JKS store of a known version, or the password is wrong.

    >>> read_jks(MAGIC + struct.pack(">II", 2, 0) + bytes(20), None)
    JavaKeyStore()
    """
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None and not hmac.compare_digest(_sha1(_utf16(password) + _WHITENER + body), digest):
        raise UnreadableStore("the password is wrong, or the file is damaged")
    keys: list[tuple[bytes, tuple[bytes, ...]]] = []
    certificates: list[bytes] = []
    try:
        source = _Source(body)
        if source.take(4) != MAGIC or (version := source.int32()) not in _VERSIONS:
            raise UnreadableStore("it is not a JKS store of a known version")
        for _ in range(source.int32()):
            tag = source.int32()
            source.text()  # the alias
            source.take(8)  # its date
            if tag == _PRIVATE_KEY:
                protected = source.sized()
                chain = tuple(source.certificate(version) for _ in range(source.int32()))
                if password is not None and with_keys:
                    keys.append((_unprotected(protected, key_password or password), chain))
            elif tag == _CERTIFICATE:
                certificates.append(source.certificate(version))
            else:
                raise UnreadableStore("it contains an entry that is neither a key nor a certificate")
    except (struct.error, ValueError):
        raise UnreadableStore("the file is damaged") from None
    return JavaKeyStore(tuple(keys), tuple(certificates))


class _Source:
    """The formats of Java's ``DataInputStream``."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError("the end of the file")
        taken, self._position = self._data[self._position : end], end
        return taken

    def int32(self) -> int:
        number: int = struct.unpack(">I", self.take(4))[0]
        return number

    def sized(self) -> bytes:
        return self.take(self.int32())

    def text(self) -> bytes:
        return self.take(struct.unpack(">H", self.take(2))[0])

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != b"X.509":
            raise ValueError("another type of certificate")
        return self.sized()


def _unprotected(protected: bytes, password: str) -> bytes:
    content = _value(protected)
    if not content.startswith(_ALGORITHM):
        raise UnreadableStore("a key is protected by an unknown algorithm")
    content = _value(content[len(_ALGORITHM) :])
    salt, encrypted, digest = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:-_DIGEST_SIZE], content[-_DIGEST_SIZE:]
    secret, stream, block = _utf16(password), bytearray(), salt
    while len(stream) < len(encrypted):
        block = _sha1(secret + block)
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + key), digest):
        raise UnreadableStore("the password of the key is wrong ('kafka.ssl.key.password')")
    return key


def _value(der: bytes) -> bytes:
    """The content of a DER element that contains all bytes after its header."""
    length, start = der[1:2], 2
    if not length:
        raise ValueError("no DER")
    if length[0] & 0x80:
        start += length[0] & 0x7F
    return der[start:]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
