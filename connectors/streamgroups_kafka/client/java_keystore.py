"""Reads JKS, the key stores of Java that are not PKCS12.

Called by :mod:`streamgroups_kafka.client.key_stores`. No kept library reads JKS: pyjks has had no release since 2020 and
needs a compiler, and its fork adds a second cryptography package. The format has not changed since 1998. Source: the
classes ``JavaKeyStore`` and ``KeyProtector`` of OpenJDK (``sun.security.provider``).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_SIZE = 20
#: DER of the algorithm of all protected keys: 1.3.6.1.4.1.42.2.17.1.1, without parameters.
_ALGORITHM = bytes.fromhex("300e060a2b060104012a021101010500")


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
