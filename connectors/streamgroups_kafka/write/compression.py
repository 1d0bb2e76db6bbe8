"""Compresses the records of a batch: Kafka's codecs, in the framing of its clients.

Called by :mod:`streamgroups_kafka.write.record_batches`. The codecs are those of pyarrow, which release the GIL; no
other library is needed. Two of them need a frame in Kafka's format. Source: Kafka's ``CompressionType``,
``Lz4BlockOutputStream`` (blocks must be independent; those of pyarrow's frames are dependent from 64 KiB on) and
snappy-java's stream format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from streamgroups.errors import InvalidOption

#: The ids of Kafka's codecs in the attributes of a batch.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

#: Kafka's defaults; those of pyarrow are slower (gzip: 9) or weaker (zstd: 1).
_DEFAULT_LEVELS = {"gzip": 6, "zstd": 3}

#: snappy-java: a magic, version 1, compatible version 1; then blocks with length prefixes.
_SNAPPY_START = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 << 10

#: LZ4: a magic, version 1 with independent blocks, blocks of at most 64 KiB, and the checksum of these two bytes.
_LZ4_START = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END = struct.pack("<I", 0)
_LZ4_AS_IT_IS = 1 << 31
_LZ4_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level.

    Args:
        name: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        level: the level of the codec; ``None`` for Kafka's default.

    Raises:
        InvalidOption: for another name, or a level that the codec does not have.

    >>> Compression("zstd").number
    4
    """

    name: str = "none"
    level: int | None = None

    def __post_init__(self) -> None:
        if self.name not in CODECS:
            raise InvalidOption(
                f"Compression '{self.name}' is unknown.",
                remedy=f"Set kafka.compression.type to one of {', '.join(CODECS)}.",
            )
        if self.level is None:
            return
        if self.name not in ("gzip", "lz4", "zstd"):
            raise InvalidOption(f"Compression '{self.name}' has no levels.", remedy="Leave the level out.")
        least, most = pa.Codec.minimum_compression_level(self._codec), pa.Codec.maximum_compression_level(self._codec)
        if not least <= self.level <= most:
            raise InvalidOption(
                f"Compression '{self.name}' has no level {self.level}.", remedy=f"Its levels are {least} to {most}."
            )

    @property
    def number(self) -> int:
        """Kafka's id of the codec."""
        return CODECS[self.name]

    @property
    def _codec(self) -> str:
        return "lz4_raw" if self.name == "lz4" else self.name

    def compress(self, data: memoryview) -> bytes:
        """Returns compressed and framed bytes. Not valid for ``none``.

        >>> len(Compression("lz4").compress(memoryview(bytes(100_000)))) < 1_000
        True
        """
        level = _DEFAULT_LEVELS.get(self.name) if self.level is None else self.level
        codec = pa.Codec(self._codec, compression_level=level)
        if self.name == "snappy":
            return _snappy(codec, data)
        if self.name == "lz4":
            return _lz4(codec, data)
        compressed: bytes = codec.compress(data, asbytes=True)
        return compressed


NONE = Compression()


def _blocks(data: memoryview, size: int) -> list[memoryview]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _snappy(codec: pa.Codec, data: memoryview) -> bytes:
    parts = [_SNAPPY_START]
    for block in _blocks(data, _SNAPPY_BLOCK_BYTES):
        compressed = codec.compress(block, asbytes=True)
        parts += [struct.pack(">i", len(compressed)), compressed]
    return b"".join(parts)


def _lz4(codec: pa.Codec, data: memoryview) -> bytes:
    parts: list[bytes | memoryview] = [_LZ4_START]
    for block in _blocks(data, _LZ4_BLOCK_BYTES):
        compressed = codec.compress(block, asbytes=True)
        if len(compressed) < len(block):
            parts += [struct.pack("<I", len(compressed)), compressed]
        else:
            parts += [struct.pack("<I", len(block) | _LZ4_AS_IT_IS), block]
    return b"".join([*parts, _LZ4_END])
