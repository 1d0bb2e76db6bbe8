"""A state file gets another manifest, and its segments stay: the result is that of a file that was written with this manifest."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups_operators.file_format import manifest_in, pack, repack, unpack
from unit_tests.examples import examples

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), ("list", pa.list_(pa.int32()))])
#: More than one part of a file.
LARGE = pa.record_batch(
    {"key": [str(n) for n in range(400_000)], "n": range(400_000), "list": [None] * 400_000}, SCHEMA
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.one_of(st.none(), st.text(max_size=9)),
            "n": st.integers(-(2**63), 2**63 - 1),
            "list": st.lists(st.integers(0, 9), max_size=3),
        }
    ),
    max_size=9,
)


@settings(max_examples=examples(50))
@given(
    segments=st.lists(ROWS, max_size=5),
    n_columns=st.integers(1, 3),
    manifests=st.tuples(st.text(max_size=400), st.text(max_size=400)),
)
def test_C3_the_result_is_that_of_a_file_with_the_new_manifest(
    segments: list[list[dict[str, Any]]], n_columns: int, manifests: tuple[str, str]
) -> None:
    schema = pa.schema(list(SCHEMA)[:n_columns])
    batches = [pa.RecordBatch.from_pylist(rows, schema) for rows in segments]
    old, new = manifests
    packed = BytesIO(pack(old, schema, batches))
    assert b"".join(repack(packed, lambda text: new if text == old else "wrong")) == bytes(pack(new, schema, batches))


def test_C3_a_large_segment_is_copied_in_parts() -> None:
    packed = pack("{}", SCHEMA, [LARGE, LARGE])
    parts = list(repack(BytesIO(packed), lambda _: "[]"))
    assert max(map(len, parts)) <= 1 << 20
    assert b"".join(parts) == bytes(pack("[]", SCHEMA, [LARGE, LARGE]))


def test_C3_a_damaged_file_is_rejected_before_its_first_part() -> None:
    packed = bytes(pack("{}", SCHEMA, [LARGE.slice(0, 10)]))
    for damaged in (packed[:-1], packed[:-1] + b"x", packed[:70], b"", b"PAR1" * 30):
        with pytest.raises(ValueError, match=r"^it"):
            next(repack(BytesIO(damaged), lambda _: "[]"))


def test_C3_a_file_of_another_program_is_rejected() -> None:
    """Its checksum is right, and its segments are not as this library writes them."""
    packed = bytes(pack("{}", SCHEMA, [LARGE.slice(0, 10)]))
    text, _ = unpack(memoryview(packed))
    assert text == "{}"
    encoded = pa.record_batch({"key": pa.array(["a", "b", "a"]).dictionary_encode()})
    with pytest.raises(ValueError, match="its content cannot be read"):
        next(repack(BytesIO(pack("{}", encoded.schema, [encoded])), lambda _: "[]"))


@given(st.text(max_size=400), st.integers(1, 700))
def test_C3_the_manifest_is_read_from_parts_of_any_size(manifest: str, size: int) -> None:
    packed = bytes(pack(manifest, SCHEMA, []))
    assert manifest_in(packed[at : at + size] for at in range(0, len(packed), size)) == manifest


def test_C3_a_large_manifest_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt after each part parses all parts before it: a manifest of 32 MB took half a minute."""
    packed, parsed, open_stream = bytes(pack("x" * 100_000, SCHEMA, [])), 0, pa.ipc.open_stream

    def counted(*args: Any) -> Any:
        nonlocal parsed
        parsed += 1
        return open_stream(*args)

    monkeypatch.setattr(pa.ipc, "open_stream", counted)
    assert manifest_in(packed[at : at + 1_000] for at in range(0, len(packed), 1_000)) == "x" * 100_000
    assert parsed == 1


@given(st.integers(64, 600), st.integers(0, 255), st.integers(1, 700))
def test_C3_a_damaged_manifest_has_no_other_error(at: int, byte: int, size: int) -> None:
    packed = bytearray(pack("x" * 400, SCHEMA, []))
    packed[at] = byte
    for damaged in (packed, packed[:at]):
        with suppress(ValueError):
            manifest_in(bytes(damaged[first : first + size]) for first in range(0, len(damaged), size))
