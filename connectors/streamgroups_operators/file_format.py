"""The format of a state file: a header with a checksum, then an Arrow IPC file.

Used by ``store``. The schema of the Arrow file carries the manifest (:mod:`streamgroups.state.manifest`), and each
record batch is a segment. The header has 64 bytes, which keeps Arrow's buffers aligned::

    streamgroups state 1 crc32=89abcdef bytes=0000000000001234      \\n

Arrow itself has no checksum, and a truncated or altered file must never become a state. Source: Arrow IPC file format.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import pyarrow as pa

_HEADER_BYTES = 64
_HEADER = re.compile(rb"streamgroups state 1 crc32=([0-9a-f]{8}) bytes=([0-9]{16}) *\n", re.ASCII)
_MANIFEST = b"streamgroups"
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
    header = f"streamgroups state 1 crc32={zlib.crc32(body):08x} bytes={len(body):016d}"
    return memoryview(header.encode().ljust(_HEADER_BYTES - 1) + b"\n" + body)


def unpack(content: memoryview) -> tuple[str, pa.ipc.RecordBatchFileReader]:
    """The manifest and the segments of a state file.

    Raises:
        ValueError: if the content is damaged or is not a state file.

    >>> unpack(memoryview(b"PAR1"))
    Traceback (most recent call last):
    ValueError: it is not a state file
    """
    header = _HEADER.fullmatch(bytes(content[:_HEADER_BYTES]))
    if header is None:
        raise ValueError("it is not a state file")
    body = content[_HEADER_BYTES:]
    if len(body) != int(header[2]):
        raise ValueError(f"it has {len(body)} bytes instead of {int(header[2])}")
    if zlib.crc32(body) != int(header[1], 16):
        raise ValueError("its checksum is wrong")
    try:
        reader = pa.ipc.open_file(pa.py_buffer(body), options=_READ_OPTIONS)
        return (reader.schema.metadata or {})[_MANIFEST].decode(), reader
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as e:
        raise ValueError(f"its content cannot be read ({type(e).__name__}: {e})") from e


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
