"""The records of a hostile topic: 99 % are plain, and 1 % are of all kinds that a hostile producer can write.

A generator with a seed, so a test can repeat it instead of storing a million records. Used by ``hostile_topic``, which
writes the records, and by ``hostile_judge``, which computes their results. Each record has its fields, as a reader of the
schema sees them, or the class of the error of ``sg.decode``. Source: SEMANTICS P4; ``docs/decoding.rst``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from integration_tests.hostile_avro import (
    SchemaIds,
    bytes_,
    decimal,
    long_,
    new_value,
    nullable,
    old_value,
    with_header,
)
from unit_tests.extreme_times import EXTREME_TIMES_MS, EXTREME_TIMES_US

PARTITIONS = 4
#: The event time of the first record, and the time between two records.
START_MS, STEP_MS = 1_750_000_000_000, 10
#: The event time of the records that close all windows, after the last one.
CLOSING_MS = 86_400_000
_EVERY = 100
_KEYS = tuple(f"gate-{n}".encode() for n in range(20))
_PLACES = ("JFK", "LGA", "EWR", "Zürich", "東京")
_DLQ = "streamgroups.dlq."


@dataclass(frozen=True, slots=True)
class Fields:
    """The decoded fields of a record. All are null in a tombstone.

    Args:
        n: the number of the record.
        place: its text.
        delay: a number.
        at_us: its event time, in microseconds.
        cents: its price.
    """

    n: int | None
    place: str | None
    delay: int | None
    at_us: int | None
    cents: int | None


TOMBSTONE = Fields(None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A value that cannot be decoded, and the class of its error."""

    error_class: str


@dataclass(frozen=True, slots=True)
class HostileRecord:
    """A record of the topic.

    Args:
        kind: its kind; empty for a plain one.
        partition: its partition, which depends on its key only.
        offset: its offset.
        key: its key.
        value: its value.
        headers: its headers.
        timestamp_ms: its timestamp; ``None``: the time at which it is written.
        decoded: its fields, or why it has none.
    """

    kind: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    decoded: Fields | Undecodable


@dataclass(slots=True)
class _Draft:
    """A plain record, which a kind changes."""

    random: random.Random
    ids: SchemaIds
    fields: Fields
    key: bytes | None
    entry: bytes = b""
    is_old: bool = False
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    error_class: str | None = None
    parts: dict[str, bytes] = field(default_factory=dict)

    def encode(self) -> None:
        """Sets the value of the fields, with the parts that a kind has replaced."""
        it = self.fields
        assert it.n is not None
        assert it.delay is not None
        place = None if it.place is None else bytes_(it.place.encode())
        common = {"n": long_(it.n), "delay": long_(it.delay)}
        if self.is_old:
            assert place is not None
            assert it.at_us is not None
            own = {"place": place, "at": long_(it.at_us // 1_000)}
            self.value = old_value(self.ids.old, common | own | self.parts)
            return
        assert it.cents is not None
        own = {
            "place": nullable(place),
            "at": nullable(None if it.at_us is None else long_(it.at_us)),
            "price": decimal(it.cents),
            "note": bytes_(self.entry),
        }
        self.value = new_value(self.ids.new, common | own | self.parts)

    def set(self, **fields: object) -> None:
        """Replaces fields, in a value of the new schema."""
        self.is_old = False
        self.fields = replace(self.fields, **fields)  # type: ignore[arg-type]

    def replace_part(self, name: str, encoded: bytes, error_class: str) -> None:
        """Replaces an encoded field, so that the value cannot be decoded."""
        self.is_old = False
        self.parts[name] = encoded
        self.error_class = error_class


_Kind = Callable[[_Draft], None]
_ASSEMBLED: dict[str, _Kind] = {}
_BEFORE: dict[str, _Kind] = {}


def _fields_of(**fields: object) -> _Kind:
    return lambda it: it.set(**fields)


def _part(name: str, encoded: bytes, error_class: str) -> _Kind:
    return lambda it: it.replace_part(name, encoded, error_class)


def _value(make: Callable[[_Draft], bytes], error_class: str) -> _Kind:
    def change(it: _Draft) -> None:
        it.value, it.error_class = make(it), error_class

    return change


def _old_time(time_ms: int) -> _Kind:
    def change(it: _Draft) -> None:
        it.is_old, it.parts["at"] = True, long_(time_ms)
        it.fields = replace(it.fields, at_us=time_ms * 1_000, cents=0)
        if not -(2**63) <= time_ms * 1_000 < 2**63:
            it.error_class = "OutOfRange"

    return change


def _keyed(key: bytes | None, **fields: object) -> _Kind:
    def change(it: _Draft) -> None:
        it.key = key
        if fields:
            it.set(**fields)

    return change


def _headed(*headers: tuple[str, bytes | None], error_class: str | None = None) -> _Kind:
    def change(it: _Draft) -> None:
        it.headers = headers
        if error_class is not None:
            it.replace_part("place", nullable(bytes_(b"\xff")), error_class)

    return change


def _timed(timestamp_ms: int) -> _Kind:
    def change(it: _Draft) -> None:
        it.timestamp_ms = timestamp_ms

    return change


def _recorded(entry: bytes) -> _Kind:
    def change(it: _Draft) -> None:
        it.is_old, it.entry = False, entry

    return change


def _old_number(it: _Draft) -> None:
    it.is_old, it.parts["n"], it.error_class = True, long_(2**40), "Malformed"


def _cut(it: _Draft) -> bytes:
    assert it.value is not None
    return it.value[: it.random.randrange(5, len(it.value))]


def _id_of(ids: Callable[[SchemaIds], tuple[int, ...]]) -> Callable[[_Draft], bytes]:
    return lambda it: with_header(it.random.choice(ids(it.ids)), (it.value or b"")[5:])


def _forged(value: bytes | None, attempt: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    names = "id group_id query failed_at_ms step error_class error details topic partition offset timestamp_ms other"
    return (
        *((_DLQ + name, value) for name in names.split()),
        (_DLQ + "attempt", attempt),
        ("streamgroups-watermark", b"9" * 15),
        ("trace", b"1"),
    )


#: Kinds that change the fields, the key, the headers or the timestamp of a record, before it is encoded.
_BEFORE |= {
    # ---- values that are no Avro of their schema
    "union without a branch": _part("place", long_(7), "Malformed"),
    "union with a negative branch": _part("at", long_(-1) + long_(7), "Malformed"),
    "string with a negative length": _part("note", long_(-5), "Malformed"),
    "string with a length of 2^60": _part("note", long_(2**60), "Malformed"),
    "number with eleven bytes": _part("n", b"\xff" * 10 + b"\x01", "Malformed"),
    "number that is not an int": _old_number,
    "int with 40 bits": _part("delay", long_(2**40), "OutOfRange"),
    "string that is not UTF-8": _part("place", nullable(bytes_(b"JF\xff")), "NotUtf8"),
    "half of a surrogate pair": _part("note", bytes_(b"\xed\xa0\x80"), "NotUtf8"),
    "overlong UTF-8": _part("place", nullable(bytes_(b"\xc0\x80")), "NotUtf8"),
    "decimal with twelve digits": _part("price", decimal(10**12), "OutOfRange"),
    "decimal without bytes": _part("price", bytes_(b""), "Malformed"),
    "decimal with 10,000 bytes": _part("price", bytes_(b"\x7f" * 10_000), "OutOfRange"),
    # ---- times in the value
    **{f"time {name}": _fields_of(at_us=us) for name, us in EXTREME_TIMES_US.items()},
    **{f"old time {name}": _old_time(ms) for name, ms in EXTREME_TIMES_MS.items() if ms is not None},
    "old time 2^63-1 ms": _old_time(2**63 - 1),
    "old time -2^63 ms": _old_time(-(2**63)),
    # ---- the timestamp of the record. A producer replaces 0 by the current time
    **{f"timestamp {name}": _timed(ms) for name, ms in EXTREME_TIMES_MS.items() if ms},
    "timestamp 2^63-1 ms": _timed(2**63 - 1),
    # ---- errors of the function
    **{
        f"function: {place}": _fields_of(place=place)
        for place in ("!zero", "!missing \x00\x1b\u202e", "!secret", "!silent", "!stop", "!deep", "!large", "!text")
    },
    # ---- texts
    "text with NUL": _fields_of(place="zzz\x00"),
    "text of SQL": _fields_of(place="'); DROP TABLE board; --"),
    "text of COPY": _fields_of(place="\\N"),
    "text of the end of COPY": _fields_of(place="\\.\n\\.\r\n\t\b"),
    "text of JSON": _fields_of(place='{"n": 1}"\\u0000'),
    "text of control characters": _fields_of(place="\x01\x1b[2J\x7f\u0085\u2028"),
    "text of noncharacters": _fields_of(place="\uffff\ufdd0\U0010ffff\ufeff"),
    "empty text": _fields_of(place=""),
    "null text": _fields_of(place=None),
    # ---- values that a sink rejects
    "price that a CHECK rejects": _fields_of(delay=1_414, cents=0),
    "window without a place": _keyed(b"nowhere", place=None),
    # ---- keys
    "null key": _keyed(None),
    "empty key": _keyed(b""),
    "binary key": _keyed(b"\xff\x00\xfe"),
    "key of NUL": _keyed(b"\x00"),
    "key of half a surrogate pair": _keyed(b"\xed\xa0\x80"),
    # ---- headers
    "forged headers": _headed(*_forged(b"7", b"7")),
    "forged headers of a letter": _headed(*_forged(b"7", b"7"), error_class="NotUtf8"),
    "forged headers that are no numbers": _headed(*_forged(b"\xff\x00", b"9" * 5_000), error_class="NotUtf8"),
    "forged null headers": _headed(*_forged(None, None), error_class="NotUtf8"),
    "header without a value": _headed(("trace", None), ("trace", b""), ("trace", b"\xff\x00")),
    "header with an empty name": _headed(("", b"1")),
    "thousand headers": _headed(*((f"h{n % 10}", b"%d" % n) for n in range(1_000))),
    "thousand headers of a letter": _headed(*(("h", b"%d" % n) for n in range(1_000)), error_class="NotUtf8"),
}
#: Kinds that change the encoded value.
_ASSEMBLED |= {
    "empty value": _value(lambda _: b"", "EmptyValue"),
    "white space": _value(lambda _: b" \t\n  ", "NoMagicByte"),
    "one byte": _value(lambda _: b"\x00", "NoMagicByte"),
    "JSON": _value(lambda _: b'{"n": 1}', "NoMagicByte"),
    "wrong magic byte": _value(lambda it: b"\x01" + (it.value or b"")[1:], "NoMagicByte"),
    "unknown schema id": _value(_id_of(lambda ids: ids.unknown), "UnknownSchemaId"),
    "mismatched schema": _value(_id_of(lambda ids: ids.mismatched), "SchemaMismatch"),
    "truncated value": _value(_cut, "Malformed"),
    "header alone": _value(lambda it: with_header(it.ids.new, b""), "Malformed"),
    "one byte more": _value(lambda it: (it.value or b"") + b"\x00", "TrailingBytes"),
    "value twice": _value(lambda it: 2 * (it.value or b""), "TrailingBytes"),
}


def _tombstone(it: _Draft) -> None:
    it.value, it.fields = None, TOMBSTONE


_ASSEMBLED["tombstone"] = _tombstone
#: Large kinds. They are rare.
_LARGE: dict[str, _Kind] = {
    "text of 1.2 MB": _fields_of(place="zzzz" * 300_000),
    "unused text of 2 MB": _recorded(b"x" * 2_000_000),
    "key of 100 KB": _keyed(b"k" * 100_000),
    "header of 500 KB": _headed(("large", b"\xff" * 500_000)),
    "header of 500 KB of a letter": _headed(("large", b"\xff" * 500_000), error_class="NotUtf8"),
    "name of a header of 30 KB": _headed(("n" * 30_000, b"1")),
}
_LARGE_VALUES: dict[str, _Kind] = {"2 MB of no Avro": _value(lambda _: b"\x07" * 2_000_000, "NoMagicByte")}
_RARE = (*_LARGE, *_LARGE_VALUES)
#: All kinds.
KINDS: Mapping[str, tuple[_Kind | None, _Kind | None]] = {
    **{name: (kind, None) for name, kind in (_BEFORE | _LARGE).items()},
    **{name: (None, kind) for name, kind in (_ASSEMBLED | _LARGE_VALUES).items()},
}


def partition_of(key: bytes | None) -> int:
    """The partition of a key."""
    return crc32(key or b"") % PARTITIONS


def hostile_records(count: int, seed: int, ids: SchemaIds) -> Iterator[HostileRecord]:
    """Generates a topic. One record of each hundred is hostile. Each kind occurs, if there are as many hostile records.

    Args:
        count: the number of records, without those that close the windows, one for each partition.
        seed: the seed.
        ids: the ids of the schemas.

    >>> some = list(hostile_records(20_000, 7, SchemaIds(1, 2, (3,), (9,))))
    >>> len(some), sum(1 for it in some if it.kind), {it.kind for it in some if it.kind} == KINDS.keys()
    (20004, 200, True)
    """
    chance = random.Random(seed)
    names = list(KINDS)
    chance.shuffle(names)
    usual = [name for name in names if name not in _RARE]
    next_offsets = [0] * PARTITIONS
    hostile = chance.randrange(_EVERY)
    for n in range(count):
        if n % _EVERY == 0:
            hostile = n + chance.randrange(_EVERY)
        kind = ""
        if n == hostile:
            kind = names.pop() if names else chance.choice(_RARE if chance.random() < 0.005 else usual)
        record = _record_of(n, kind, chance, ids)
        yield replace(record, offset=next_offsets[record.partition])
        next_offsets[record.partition] += 1
    for partition in range(PARTITIONS):
        key = next(it for it in _KEYS if partition_of(it) == partition)
        fields = Fields(count + partition, "JFK", 0, (START_MS + count * STEP_MS + CLOSING_MS) * 1_000, 0)
        draft = _Draft(chance, ids, fields, key)
        draft.encode()
        yield HostileRecord("", partition, next_offsets[partition], key, draft.value, (), None, fields)


def _record_of(n: int, kind: str, chance: random.Random, ids: SchemaIds) -> HostileRecord:
    is_old = chance.random() < 0.5
    fields = Fields(
        n,
        _PLACES[n % len(_PLACES)],
        chance.randrange(1_000),
        (START_MS + n * STEP_MS) * 1_000,
        0 if is_old else chance.randrange(100),
    )
    draft = _Draft(chance, ids, fields, _KEYS[n * 613 % len(_KEYS)], is_old=is_old)
    before, assembled = KINDS[kind] if kind else (None, None)
    if before is not None:
        before(draft)
    draft.encode()
    if assembled is not None:
        assembled(draft)
    decoded = draft.fields if draft.error_class is None else Undecodable(draft.error_class)
    partition = partition_of(draft.key)
    return HostileRecord(kind, partition, 0, draft.key, draft.value, draft.headers, draft.timestamp_ms, decoded)
