"""The format of a state file: a header with a checksum, then an Arrow IPC file.

Used by ``store``. The schema of the Arrow file carries the manifest (:mod:`streamgroups.state.manifest`), and each
record batch is a segment. The header has 64 bytes, which keeps Arrow's buffers aligned::

    streamgroups state 1 crc32=89abcdef bytes=0000000000001234      \\n

Arrow itself has no checksum, and a truncated or altered file must never become a state. Source: Arrow IPC file format.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import pyarrow as pa

_HEADER_BYTES = 64
_HEADER = re.compile(rb"streamgroups state 1 crc32=([0-9a-f]{8}) bytes=([0-9]{16}) *\n", re.ASCII)
_MANIFEST = b"streamgroups"
#: A file of Arrow begins with ``ARROW1`` and two zeros, and ends with the size of its footer and ``ARROW1``.
_MAGIC, _MAGIC_BYTES = b"ARROW1", 8
_TAIL = struct.Struct("<i6s")
#: A message of Arrow begins with a mark and the size of its metadata.
_MESSAGE, _MARK = struct.Struct("<Ii"), 0xFFFFFFFF
#: A segment in the footer: its offset, the size of its metadata with the mark, and the size of its content.
_BLOCK = struct.Struct("<qi4xq")
_PART_BYTES = 1 << 20
#: State is written once and read a few times; zstd makes it two to four times smaller in less time than the disk needs.
#: A segment is small: passing its columns to the threads of Arrow costs a fifth of the processor time of a small batch.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


def pack(manifest: str, schema: pa.Schema, segments: Sequence[pa.RecordBatch]) -> memoryview:
    """The content of a state file.

    Args:
        manifest: the manifest, as JSON.
        schema: the schema of all segments.
        segments: the segments, in the order of their numbers.

    >>> batch = pa.record_batch({"key": ["a"], "n": [1]})
    >>> text, segments = unpack(pack("{}", batch.schema, [batch]))
    >>> text, segments.get_batch(0).to_pydict()
    ('{}', {'key': ['a'], 'n': [1]})
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema.with_metadata({_MANIFEST: manifest.encode()}), options=_WRITE_OPTIONS) as writer:
        for segment in segments:
            writer.write_batch(segment)
    body = memoryview(sink.getvalue())
    return memoryview(_header(len(body), zlib.crc32(body)) + body)


def repack(packed: IO[bytes], change: Callable[[str], str]) -> Iterator[bytes]:
    """The content of a state file with another manifest and the same segments, in parts of constant size.

    The bytes of the segments are copied as they are. Only the schema before them and the footer behind them change.

    Args:
        packed: the state file.
        change: returns the new manifest for the old one.

    Raises:
        ValueError: if the content is damaged or is not a state file.

    >>> from io import BytesIO
    >>> batch = pa.record_batch({"key": ["a"], "n": [1]})
    >>> packed = pack("{}", batch.schema, [batch])
    >>> text, segments = unpack(memoryview(b"".join(repack(BytesIO(packed), lambda text: f"[{text}]"))))
    >>> text, segments.get_batch(0).to_pydict()
    ('[{}]', {'key': ['a'], 'n': [1]})
    """
    n_bytes, crc32 = _parsed_header(packed.read(_HEADER_BYTES))
    _check_body(_sum_of(packed), n_bytes, crc32)
    try:
        begin, first, end, footer = _changed(packed, n_bytes, change)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError, struct.error) as e:
        raise _unreadable(e) from e

    def body() -> Iterator[bytes]:
        yield begin
        packed.seek(_HEADER_BYTES + first)
        for at in range(first, end, _PART_BYTES):
            yield packed.read(min(_PART_BYTES, end - at))
        yield footer

    size = crc32 = 0
    for part in body():
        size, crc32 = size + len(part), zlib.crc32(part, crc32)
    yield _header(size, crc32)
    yield from body()


def _changed(packed: IO[bytes], n_bytes: int, change: Callable[[str], str]) -> tuple[bytes, int, int, bytes]:
    """The new content before the segments, the range of the segments in the old body, and the new footer."""
    packed.seek(_HEADER_BYTES + n_bytes - _TAIL.size)
    (footer_bytes, _) = _TAIL.unpack(packed.read(_TAIL.size))
    end = n_bytes - _TAIL.size - footer_bytes
    packed.seek(_HEADER_BYTES + end)
    footer = packed.read(footer_bytes)
    packed.seek(_HEADER_BYTES)
    (schema_bytes,) = _MESSAGE.unpack(packed.read(_MAGIC_BYTES + _MESSAGE.size)[_MAGIC_BYTES:])[1:]
    first = _MAGIC_BYTES + _MESSAGE.size + schema_bytes
    packed.seek(_HEADER_BYTES)
    schema = pa.ipc.open_stream(packed.read(first)[_MAGIC_BYTES:]).schema
    new = schema.with_metadata({_MANIFEST: change(_manifest_in(schema)).encode()})
    at_end = _HEADER_BYTES + n_bytes
    count = pa.ipc.open_file(pa.PythonFile(packed, "r"), at_end, options=_READ_OPTIONS).num_record_batches
    old_blank, new_blank = _Blank(schema, count), _Blank(new, count)
    blocks = old_blank.blocks_in(footer)
    places = [first, *(offset + meta + size for offset, meta, size in blocks)]
    if [offset for offset, _, _ in blocks] != places[:-1] or places[-1] + _MESSAGE.size != end:
        raise ValueError("its content cannot be read (its segments are not one behind the other)")
    shift = len(new_blank.begin) - first
    tail = new_blank.footer_with([(offset + shift, meta, size) for offset, meta, size in blocks])
    return new_blank.begin, first, end, tail + _TAIL.pack(len(tail), _MAGIC)


class _Blank:
    """A file of Arrow with empty segments. Its footer has the form of that of any file with this schema and number of segments.

    Args:
        schema: the schema.
        count: the number of segments.
    """

    def __init__(self, schema: pa.Schema, count: int) -> None:
        sink, empty = pa.BufferOutputStream(), pa.RecordBatch.from_pylist([], schema)
        starts = [_MAGIC_BYTES + len(schema.serialize())]
        with pa.ipc.new_file(sink, schema) as writer:
            for _ in range(count):
                writer.write_batch(empty)
                starts.append(sink.tell())
        content: bytes = sink.getvalue().to_pybytes()
        #: The magic and the schema.
        self.begin = content[: starts[0]]
        (footer_bytes, _) = _TAIL.unpack(content[-_TAIL.size :])
        self._footer = content[-_TAIL.size - footer_bytes : -_TAIL.size]
        metas = [_MESSAGE.size + _MESSAGE.unpack_from(content, it)[1] for it in starts[:-1]]
        own = [(a, meta, b - a - meta) for a, b, meta in zip(starts[:-1], starts[1:], metas, strict=True)]
        packed = _packed(own)
        self._n_bytes, self._at = len(packed), self._footer.find(packed)
        if self._at < 0:
            raise ValueError("its content cannot be read (the footer of Arrow has another form)")

    def blocks_in(self, footer: bytes) -> list[tuple[int, int, int]]:
        """The offset, the size of the metadata, and the size of the content of each segment."""
        if len(footer) != len(self._footer):
            raise ValueError("its content cannot be read (the footer of Arrow has another form)")
        return list(_BLOCK.iter_unpack(footer[self._at : self._at + self._n_bytes]))

    def footer_with(self, blocks: Sequence[tuple[int, int, int]]) -> bytes:
        """The footer of a file whose segments are at these places."""
        return self._footer[: self._at] + _packed(blocks) + self._footer[self._at + self._n_bytes :]


def _packed(blocks: Sequence[tuple[int, int, int]]) -> bytes:
    return b"".join(_BLOCK.pack(*it) for it in blocks)


def unpack(content: memoryview) -> tuple[str, pa.ipc.RecordBatchFileReader]:
    """The manifest and the segments of a state file.

    Raises:
        ValueError: if the content is damaged or is not a state file.

    >>> unpack(memoryview(b"PAR1"))
    Traceback (most recent call last):
    ValueError: it is not a state file
    """
    body = _body_of(content)
    try:
        reader = pa.ipc.open_file(pa.py_buffer(body), options=_READ_OPTIONS)
        return _manifest_in(reader.schema), reader
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as e:
        raise _unreadable(e) from e


def is_whole(content: memoryview) -> bool:
    """Whether the content is that of a state file, with the right checksum.

    >>> batch = pa.record_batch({"n": [1]})
    >>> packed = pack("{}", batch.schema, [batch])
    >>> is_whole(packed), is_whole(packed[:-1])
    (True, False)
    """
    try:
        _body_of(content)
    except ValueError:
        return False
    return True


def _body_of(content: memoryview) -> memoryview:
    n_bytes, crc32 = _parsed_header(bytes(content[:_HEADER_BYTES]))
    body = content[_HEADER_BYTES:]
    _check_body((len(body), zlib.crc32(body)), n_bytes, crc32)
    return body


def _header(n_bytes: int, crc32: int) -> bytes:
    return f"streamgroups state 1 crc32={crc32:08x} bytes={n_bytes:016d}".encode().ljust(_HEADER_BYTES - 1) + b"\n"


def _parsed_header(header: bytes) -> tuple[int, int]:
    """The size and the checksum of the body."""
    found = _HEADER.fullmatch(header)
    if found is None:
        raise ValueError("it is not a state file")
    return int(found[2]), int(found[1], 16)


def _check_body(found: tuple[int, int], n_bytes: int, crc32: int) -> None:
    if found[0] != n_bytes:
        raise ValueError(f"it has {found[0]} bytes instead of {n_bytes}")
    if found[1] != crc32:
        raise ValueError("its checksum is wrong")


def _sum_of(rest: IO[bytes]) -> tuple[int, int]:
    """The number of the remaining bytes of a file, and their checksum."""
    n_bytes = crc32 = 0
    while part := rest.read(_PART_BYTES):
        n_bytes, crc32 = n_bytes + len(part), zlib.crc32(part, crc32)
    return n_bytes, crc32


def _manifest_in(schema: pa.Schema) -> str:
    metadata = schema.metadata or {}
    if _MANIFEST not in metadata:
        raise ValueError("it has no manifest")
    return str(metadata[_MANIFEST].decode())


def _unreadable(error: Exception) -> ValueError:
    return ValueError(f"its content cannot be read ({type(error).__name__}: {error})")


def checked_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a state file in parts, as it is.

    Args:
        parts: the content.

    Raises:
        ValueError: after the last part, if the content is damaged or is not a state file.

    >>> list(checked_parts([b"PAR1"]))
    Traceback (most recent call last):
    ValueError: it is not a state file
    """
    header, n_bytes, crc32 = b"", 0, 0
    for part in parts:
        missing = _HEADER_BYTES - len(header)
        header += part[:missing]
        n_bytes, crc32 = n_bytes + len(part[missing:]), zlib.crc32(part[missing:], crc32)
        if len(header) == _HEADER_BYTES:
            _parsed_header(header)
        yield part
    _check_body((n_bytes, crc32), *_parsed_header(header))


def manifest_in(parts: Iterable[bytes]) -> str:
    """The manifest of a state file, from its first parts. The rest is not read, so its checksum is not verified.

    Raises:
        ValueError: if the content is not a state file.

    >>> batch = pa.record_batch({"n": [1]})
    >>> manifest_in([bytes(pack("{}", batch.schema, [batch]))])
    '{}'
    """
    begin, end = bytearray(), _HEADER_BYTES + _MAGIC_BYTES + _MESSAGE.size
    is_sized = False
    for part in parts:
        begin += part
        if len(begin) >= _HEADER_BYTES:
            _parsed_header(bytes(begin[:_HEADER_BYTES]))
        if not is_sized and len(begin) >= end:
            # Arrow parses the whole schema at each attempt, so the only attempt is behind its last byte.
            end += _schema_bytes(begin[_HEADER_BYTES + _MAGIC_BYTES : end])
            is_sized = True
        if is_sized and len(begin) >= end:
            try:
                return _manifest_in(pa.ipc.open_stream(begin[_HEADER_BYTES + _MAGIC_BYTES : end]).schema)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
                raise _unreadable(e) from e
    _parsed_header(bytes(begin[:_HEADER_BYTES]))
    raise ValueError("its content cannot be read (it ends within its manifest)")


def _schema_bytes(message: bytes | bytearray) -> int:
    """The size of the metadata of the first message of Arrow."""
    mark, size = _MESSAGE.unpack(message)
    if mark != _MARK or size < 0:
        raise ValueError("its content cannot be read (it does not begin with a schema)")
    return int(size)


def segment_of(
    reader: pa.ipc.RecordBatchFileReader, number: int, rows: int, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    """A segment of a state file, without metadata.

    Args:
        reader: the segments of the file.
        number: the number of the segment.
        rows: the number of its rows.
        schema: its schema; ``None`` for any.

    Raises:
        ValueError: if the file has no such segment. A right checksum does not exclude it: another program can write one.

    >>> batch = pa.record_batch({"key": ["a"], "n": [1]})
    >>> _, reader = unpack(pack("{}", batch.schema, [batch]))
    >>> segment_of(reader, 0, rows=2)
    Traceback (most recent call last):
    ValueError: segment 0 has 1 rows, not 2
    """
    if number >= reader.num_record_batches:
        raise ValueError(f"it has no segment {number}")
    try:
        batch = reader.get_batch(number)
        batch.validate()
    except (pa.ArrowException, OSError) as e:
        raise ValueError(f"segment {number} cannot be read ({type(e).__name__}: {e})") from e
    if batch.num_rows != rows:
        raise ValueError(f"segment {number} has {batch.num_rows} rows, not {rows}")
    if schema is not None and not batch.schema.equals(schema, check_metadata=False):
        columns = ", ".join(f"{field.name} {field.type}" for field in batch.schema)
        raise ValueError(f"segment {number} has other columns: {columns}")
    return batch.replace_schema_metadata(None)
