"""Keys go where Kafka's own clients send them, hashed natively or by kafka-python, wherever in its buffers Arrow has them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from streamgroups.errors import InvalidOption
from streamgroups_kafka.write.native_encoder import NativeEncoder
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_kafka.write.plain_encoder import PlainEncoder

#: Of Kafka's own test of ``Utils.murmur2``, and of librdkafka's of ``rd_murmur2``.
KNOWN = {
    b"21": -973932308 & 0xFFFFFFFF,
    b"foobar": -790332482 & 0xFFFFFFFF,
    b"a-little-bit-long-string": -985981536 & 0xFFFFFFFF,
    b"a-little-bit-longer-string": -1486304829 & 0xFFFFFFFF,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971 & 0xFFFFFFFF,
    b"abc": 479470107,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"234": 0xE7C009CA,
    b"34": 0x873930DA,
    b"4": 0x5A4B5CA1,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    b"reAmbleWillBeRemoved,ThePrePartThatIs": 0x4A62B377,
    b"eAmbleWillBeRemoved,ThePrePartThatIs": 0xE0E4E09E,
    b"AmbleWillBeRemoved,ThePrePartThatIs": 0x62B8B43F,
    b"": 0x106E08D9,
}
BYTES = [pa.binary(), pa.large_binary()]
TEXTS = [pa.string(), pa.large_string()]


def test_known_hashes(using: str) -> None:
    encoder = {"native": NativeEncoder, "plain": PlainEncoder}[using]()
    for of in BYTES:
        assert encoder.murmur2_of_keys(pa.array(KNOWN, of)).tolist() == list(KNOWN.values())
    assert encoder.murmur2_of_keys(pa.array([None, b"abc"])).tolist() == [0, KNOWN[b"abc"]]


def test_partitions_are_those_of_the_java_client(using: str) -> None:
    """``toPositive`` clears the sign bit; it is no absolute value."""
    keys = pa.array(KNOWN, pa.binary())
    for n_partitions in (1, 2, 3, 12, 1_000, 2**31 - 1):
        expected = [(hash_ & 0x7FFFFFFF) % n_partitions for hash_ in KNOWN.values()]
        found = partitions_of_keys(keys, n_partitions)
        assert found.type == pa.int32()
        assert found.to_pylist() == expected
        counts = pa.array([n_partitions] * len(keys))
        assert partitions_of_keys(keys, counts).to_pylist() == expected


@st.composite
def _keys(draw: st.DrawFn) -> tuple[pa.Array, list[bytes | None]]:
    """Keys as a slice of a larger array, and as bytes."""
    sizes = st.integers(0, 9) | st.integers(0, 70)
    if draw(st.booleans()):
        keys = draw(st.lists(st.none() | sizes.flatmap(lambda n: st.binary(min_size=n, max_size=n)), max_size=30))
        whole = pa.array(keys, draw(st.sampled_from(BYTES)))
    else:
        keys = draw(st.lists(st.none() | st.text(max_size=20), max_size=30))
        whole = pa.array(keys, draw(st.sampled_from(TEXTS)))
    first = draw(st.integers(0, len(keys)))
    count = draw(st.integers(0, len(keys) - first))
    return whole.slice(first, count), [k.encode() if isinstance(k, str) else k for k in keys[first : first + count]]


@given(keys=_keys(), n_partitions=st.integers(1, 20) | st.integers(1, 2**31 - 1))
def test_any_slice_has_the_partitions_of_another_implementation(
    extension: Any, keys: tuple[pa.Array, list[bytes | None]], n_partitions: int
) -> None:
    array, plain = keys
    native = NativeEncoder().murmur2_of_keys(array).tolist()
    assert native == PlainEncoder().murmur2_of_keys(array).tolist()
    assert native == [0 if key is None else murmur2(key) for key in plain]
    expected = [None if key is None else (murmur2(key) & 0x7FFFFFFF) % n_partitions for key in plain]
    assert partitions_of_keys(array, n_partitions).to_pylist() == expected
    middle = len(array) // 2
    chunked = pa.chunked_array([array[:middle], array[middle:]], array.type)
    assert partitions_of_keys(chunked, n_partitions).to_pylist() == expected


@given(key=st.binary(max_size=40), before=st.integers(600, 609))
def test_nothing_is_read_past_the_last_key(extension: Any, key: bytes, before: int) -> None:
    """Its bytes are the last of a buffer that holds no byte more; `make sanitize` sees one that is read.

    The buffer is too large for Python's own allocator, which the sanitizer does not observe.
    """
    data = pa.py_buffer(bytearray(b"x" * before + key))
    ends = pa.py_buffer(struct.pack("=2i", before, before + len(key)))
    array = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    for encoder in (NativeEncoder(), PlainEncoder()):
        assert encoder.murmur2_of_keys(array).tolist() == [murmur2(key)]


@given(offsets=st.lists(st.integers(-3, 12) | st.sampled_from([-(2**31), 2**31 - 1]), min_size=3, max_size=3))
@example(offsets=[5, 3, 7])
@example(offsets=[-1, 0, 0])
@example(offsets=[0, 4, 12])
def test_offsets_that_lead_astray_never_crash(extension: Any, offsets: list[int]) -> None:
    ends = bytearray(12)
    array = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(ends), pa.py_buffer(b"x" * 8)])
    # After pyarrow has checked it.
    struct.pack_into("=3i", ends, 0, *offsets)
    good = offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= 8
    for required in ("native", "plain"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STREAMGROUPS_ENCODER", required)
            if good:
                assert len(partitions_of_keys(array, 4)) == 2
            else:
                with pytest.raises(ValueError):  # noqa: PT011 - pyarrow's words or ours
                    partitions_of_keys(array, 4)


def test_empty_columns_and_columns_of_nulls(using: str) -> None:
    for of in (*BYTES, *TEXTS, pa.null()):
        assert partitions_of_keys(pa.array([], of), 3).to_pylist() == []
        assert partitions_of_keys(pa.chunked_array([], of), 3).to_pylist() == []
        found = partitions_of_keys(pa.array([None, None], of), 3)
        assert (found.type, found.to_pylist()) == (pa.int32(), [None, None])


def test_a_number_of_partitions_for_each_key() -> None:
    keys = pa.array([b"kafka", None, b"kafka"])
    assert partitions_of_keys(keys, pa.array([8, None, 3])).to_pylist() == [4, None, 1]
    assert partitions_of_keys(keys, pa.array([8, -1, 3], pa.int32())).to_pylist() == [4, None, 1]


@pytest.mark.parametrize("wrong", [0, -1, 2**31, pa.array([3, 0]), pa.array([None, 3]), pa.array([2**31, 3])])
def test_a_topic_has_at_least_one_partition(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="A topic cannot have"):
        partitions_of_keys(pa.array(["a", "b"]), wrong)


def test_other_keys_are_rejected() -> None:
    for keys in (pa.array([1]), pa.array(["a"]).dictionary_encode(), pa.array(["a"], pa.string_view())):
        with pytest.raises(InvalidOption, match=r"Cast them to binary or string\."):
            partitions_of_keys(keys, 3)
    with pytest.raises(ValueError, match="1 partition counts for 2 keys"):
        partitions_of_keys(pa.array(["a", "b"]), pa.array([3]))


def test_the_extension_itself_rejects_columns_that_it_cannot_read(extension: Any) -> None:
    for wrong in (pa.array([1]), pa.record_batch({"key": ["a"]}), pa.array(["a"]).dictionary_encode(), pa.nulls(1)):
        with pytest.raises(ValueError, match="must be binary or string"):
            extension.murmur2_of_keys(*wrong.__arrow_c_array__())
    for arguments in (("schema", "array"), pa.array(["a"]).__arrow_c_array__()[::-1]):
        with pytest.raises(ValueError):  # noqa: PT011 - Python's own words
            extension.murmur2_of_keys(*arguments)
    given_away = pa.array(["a"]).__arrow_c_array__()
    pa.Array._import_from_c_capsule(*given_away)
    with pytest.raises(ValueError, match="given away"):
        extension.murmur2_of_keys(*given_away)
