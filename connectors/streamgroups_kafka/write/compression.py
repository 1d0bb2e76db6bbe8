"""How the records of a batch are compressed: Kafka's codecs, in the framing that its clients read.

Called by :mod:`streamgroups_kafka.write.record_batches`. The work is done by the codecs that pyarrow carries, which let the GIL go; no
library more is needed. Two of them need a frame of Kafka's own around them. Source: Kafka's ``CompressionType``, ``Lz4BlockOutputStream``
(blocks must be independent, which pyarrow's own frames are not from 64 KiB on) and snappy-java's stream format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from streamgroups.errors import InvalidOption

#: Numbers of Kafka's codecs, as they stand in a batch's attributes.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

#: Kafka's own defaults; pyarrow's are slower (gzip: 9) or weaker (zstd: 1).
_DEFAULT_LEVELS = {"gzip": 6, "zstd": 3}

#: snappy-java: a magic, version 1, readable since version 1; then blocks, each after its length.
_SNAPPY_START = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 << 10

#: LZ4: a magic, version 1 with independent blocks, blocks of at most 64 KiB, and the checksum of these two bytes.
_LZ4_START = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END = struct.pack("<I", 0)
_LZ4_AS_IT_IS = 1 << 31
_LZ4_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and how hard it tries.

    Args:
        name: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        level: the codec's own level; ``None`` for Kafka's default.

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
        """Kafka's number of the codec."""
        return CODECS[self.name]

    @property
    def _codec(self) -> str:
        return "lz4_raw" if self.name == "lz4" else self.name

    def compress(self, data: memoryview) -> bytes:
        """Bytes, compressed and framed. Not to be called for ``none``.

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
