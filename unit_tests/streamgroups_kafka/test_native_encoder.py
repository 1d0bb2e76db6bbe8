"""The native encoder itself: malformed Arrow never crashes it, checksums are right, and it is missed without harm."""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups_kafka import native
from streamgroups_kafka.write.encoder import HEADER_BYTES
from streamgroups_kafka.write.plain_encoder import PlainEncoder
from streamgroups_kafka.write.record_batches import BatchSettings, encoder
from unit_tests.records import (
    NAMELESS,
    NO_ENTRY,
    encoded,
)

# ---- malformed Arrow ---------------------------------------------------------------------------------------------------


class Astray:
    """An array of two rows whose offsets are written after pyarrow has checked it."""

    def __init__(self, of: pa.DataType, offsets: Sequence[int], *children: pa.Array) -> None:
        is_large = of in (pa.large_binary(), pa.large_string()) or pa.types.is_large_list(of)
        self._format, self._offsets = f"={len(offsets)}{'q' if is_large else 'i'}", offsets
        self._ends = bytearray(struct.calcsize(self._format))
        buffers = [None, pa.py_buffer(self._ends)]
        if not children:
            buffers.append(pa.py_buffer(b"x" * 8))
        self.array = pa.Array.from_buffers(of, len(offsets) - 1, buffers, children=list(children))

    def lead(self) -> None:
        struct.pack_into(self._format, self._ends, 0, *self._offsets)


_OFFSETS = st.lists(st.integers(-3, 12) | st.sampled_from([-(2**31), 2**31 - 1]), min_size=3, max_size=3)


@settings(deadline=None)
@given(
    keys=_OFFSETS,
    lists=_OFFSETS,
    names=_OFFSETS,
    of=st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]),
    of_lists=st.sampled_from([pa.list_, pa.large_list]),
)
def test_offsets_that_lead_astray_never_crash(
    extension: Any, keys: list[int], lists: list[int], names: list[int], of: pa.DataType, of_lists: Any
) -> None:
    """What is in order is encoded, the rest is an error; nothing outside of the buffers is read."""
    of_names, of_keys = Astray(pa.string(), names), Astray(of, keys)
    entries = pa.StructArray.from_arrays([of_names.array, pa.array([b"", b""])], ["key", "value"])
    of_headers = Astray(of_lists(entries.type), lists, entries)
    batch = pa.record_batch(
        {"partition": pa.array([0, 0], pa.int32()), "key": of_keys.array, "headers": of_headers.array}
    )
    for astray in (of_names, of_keys, of_headers):
        astray.lead()

    def in_order(offsets: list[int], most: int) -> bool:
        return offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= most

    good = in_order(keys, 8) and in_order(lists, 2)
    if good and in_order(names, 8):
        assert encoded("native", batch, BatchSettings()) == encoded("plain", batch, BatchSettings())
        return
    try:
        made = encoded("native", batch, BatchSettings())
    except (ValueError, RecordRejected):
        return
    # Names that no list uses do not matter.
    assert good
    assert sum(b.n_records for b in made) == 2


def _capsules(columns: Mapping[str, Any]) -> tuple[object, object]:
    arrays = {name: column.array if isinstance(column, Astray) else column for name, column in columns.items()}
    schema, array = pa.record_batch({"partition": pa.array([0, 1], pa.int32())} | arrays).__arrow_c_array__()
    for column in columns.values():
        if isinstance(column, Astray):
            column.lead()
    return schema, array


_DESCENDING = [5, 3, 7]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"partition": pa.array([0, -1], pa.int32())}, "row 1: a negative partition"),
        ({"partition": pa.array([0, 1])}, "partitions must be int32"),
        ({"partition": pa.array([0, None], pa.int32())}, "none of them null"),
        ({"partition": pa.array([0, 1], pa.int32()).dictionary_encode()}, "partitions must be int32"),
        ({"timestamp": pa.array([0, -5])}, "row 1: a negative timestamp"),
        ({"timestamp": pa.array([0, 1], pa.timestamp("ms"))}, "timestamps int64"),
        ({"key": pa.array([0, 1])}, "must be binary or string"),
        ({"key": pa.array(["a", "a"]).dictionary_encode()}, "must be binary or string"),
        ({"value": pa.nulls(2)}, "must be binary or string"),
        ({"value": pa.array(["a", "b"], pa.string_view())}, "must be binary or string"),
        ({"value": Astray(pa.binary(), _DESCENDING)}, "offsets that are not in order"),
        ({"value": Astray(pa.large_binary(), _DESCENDING)}, "offsets that are not in order"),
        ({"value": Astray(pa.binary(), [-1, 0, 0])}, "offsets that are not in order"),
        ({"headers": pa.array(["a", "b"])}, "headers must be a list"),
        ({"headers": pa.array([[1], [2]])}, "a list of structs"),
        ({"headers": pa.array([[{"key": "a"}], []])}, "malformed array of headers"),
        ({"headers": pa.array([[{"key": 1, "value": b""}], []])}, "must be binary or string"),
        ({"headers": NAMELESS}, "row 1: a header without a name"),
        ({"headers": NO_ENTRY}, "row 1: a header without a name"),
        ({"headers": Astray(NAMELESS.type, [0, 1, 9], NAMELESS.values)}, "malformed array of headers"),
        ({"note": pa.array([0, 1])}, "a column of another name"),
    ],
)
def test_the_extension_itself_rejects_columns_that_it_cannot_read(
    extension: Any, columns: Mapping[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        extension.encode(*_capsules(columns), 1_000, 0, -1, -1, False, {}, -1, False)


def test_the_extension_itself_rejects_other_arguments(extension: Any) -> None:
    def good() -> list[Any]:
        return [*_capsules({}), 1_000, 0, 5, 0, False, {}, 7, False]

    assert len(extension.encode(*good())) == 2
    wrong: list[tuple[int, Any, type[Exception]]] = [
        (0, good()[1], ValueError),
        (1, "array", ValueError),
        (2, -1, ValueError),
        (2, 2**31, ValueError),
        (3, -1, ValueError),
        (3, 2**63, OverflowError),
        (4, "5", TypeError),
        (5, -1, ValueError),
        (5, 2**15, OverflowError),
        (7, [], TypeError),
        (7, {0: "1"}, TypeError),
        (7, {0: -1}, ValueError),
        (7, {1: 2**31}, ValueError),
        (7, {1: 2**70}, OverflowError),
        (8, "1", TypeError),
        (8, 2**63, OverflowError),
    ]
    for place, value, error in wrong:
        arguments = good()
        arguments[place] = value
        with pytest.raises(error):
            extension.encode(*arguments)
    with pytest.raises(ValueError, match="a transaction without a producer id"):
        extension.encode(*_capsules({}), 1_000, 0, -1, -1, True, {}, -1, False)
    with pytest.raises(ValueError, match="no column 'partition'"):
        extension.encode(*pa.record_batch({"value": ["a"]}).__arrow_c_array__(), 1_000, 0, -1, -1, False, {}, -1, False)
    given_away = _capsules({})
    pa.RecordBatch._import_from_c_capsule(*given_away)
    with pytest.raises(ValueError, match="given away"):
        extension.encode(*given_away, 1_000, 0, -1, -1, False, {}, -1, False)
    for batch, codec in [(b"", 1), (bytes(HEADER_BYTES), 8), (bytes(HEADER_BYTES), -1)]:
        with pytest.raises(ValueError, match="not a record batch"):
            extension.with_compressed(batch, codec, b"")


# ---- checksums, and the extension that is not there --------------------------------------------------------------------


def test_the_checksum_is_that_of_its_standard(extension: Any) -> None:
    """RFC 3720, B.4, and the check value of the CRC catalogues."""
    for crc in (extension.crc32c, extension.crc32c_by_table):
        assert crc(b"123456789") == 0xE3069283
        assert crc(bytes(32)) == 0x8A9136AA
        assert crc(b"\xff" * 32) == 0x62A8AB43
        assert crc(bytes(range(32))) == 0x46DD794E
        assert crc(b"") == 0


@given(st.binary(max_size=300))
def test_the_checksum_is_the_same_with_and_without_the_processors_instruction(extension: Any, data: bytes) -> None:
    assert extension.crc32c(data) == extension.crc32c_by_table(data)
    if extension.crc32c_in_hardware():
        assert extension.crc32c(data[1:]) == extension.crc32c_by_table(data[1:])


def test_a_missing_extension_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", None)
    native.encoder_status.cache_clear()
    native._uses_native.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert isinstance(encoder(), PlainEncoder)
            assert isinstance(encoder(), PlainEncoder)
        assert len(caplog.records) == 1
        assert "a C compiler" in caplog.text
        with pytest.raises(InvalidOption, match="STREAMGROUPS_ENCODER requires the native encoder"):
            native._uses_native("encoder", "native")
    finally:
        native.encoder_status.cache_clear()
        native._uses_native.cache_clear()


def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", object())
    native.encoder_status.cache_clear()
    try:
        assert "another version" in native.encoder_status().reason
    finally:
        native.encoder_status.cache_clear()


def test_another_encoder_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="STREAMGROUPS_ENCODER is 'fast'"):
        native._uses_native("encoder", "fast")
