"""All parsers of external input with valid input for each, and the corruption of input.

``test_hostile_input`` uses a few hundred inputs for each parser. ``make fuzz`` runs it for a given time::

    python -m unit_tests.hostile_input --minutes 60 --seed 7

A parser returns a value or rejects the input. Any other exception is a bug, and so is a value out of bounds.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import logging
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from streamgroups.checkpoints.offset import BatchOffset, decode, encode
from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest
from streamgroups.cursors import cursor_tokens
from streamgroups.decoding.registry import RegisteredSchema
from streamgroups.decoding.value_errors import CannotDecode
from streamgroups.decoding.wire_format import split_header, split_indexes
from streamgroups.dlq.letter_files import document_of, parse_lines
from streamgroups.dlq.record_headers import to_headers
from streamgroups.dlq.stored_letters import StoredLetter, stored
from streamgroups.errors import InvalidOption, OffsetFormat, StreamGroupsError
from streamgroups.event_time import stored_time as recorded
from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.strategy import Generation, Progress
from streamgroups.event_time.time_entries import read_time, write_entry
from streamgroups.event_time.watermark import At
from streamgroups.groups import history, offset_files
from streamgroups.identity import TopicIdentity
from streamgroups.instances.entries import Observation, Observed, Placement, Replica
from streamgroups.instances.entries import Progress as InstanceProgress
from streamgroups.instances.entry_json import read_entry
from streamgroups.instances.entry_json import write_entry as write_instance_entry
from streamgroups.ledgers.no_data_batch import NoDataBatch
from streamgroups.message import Message
from streamgroups.monitoring.query_progress import decode_report, encode_report, read_progress
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import loss_policies
from streamgroups.query.position_options import starting_positions
from streamgroups.query.skipped_range_store import SkippedRanges
from streamgroups_kafka.admin import group_protocol
from streamgroups_kafka.admin.cluster import parse_subscription
from streamgroups_kafka.admin.groups import parse_assignment
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_schemas import avro_types, protobuf_files
from streamgroups_schemas.avro_values import AVRO, decode_avro
from streamgroups_schemas.json_schema import validate_json
from streamgroups_schemas.protobuf_values import PROTOBUF, MessageSchema, decode_protobuf
from streamgroups_spark.processors.yaml_text import read_text
from unit_tests.letters import LETTER

Text: TypeAlias = str | bytes

_P0, _P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
_GOLDEN = Path(__file__).parent / "golden"
_INT64 = 2**63


@dataclass(frozen=True)
class Parser:
    """A parser of external input.

    Args:
        name: the name of the parser.
        valid: valid inputs.
        parse: parses one input.
        rejects: the exceptions that reject an input; most parsers return ``None`` instead.
    """

    name: str
    valid: tuple[Text, ...] = field(repr=False)
    parse: Callable[[Any], object]
    rejects: tuple[type[Exception], ...] = field(default=())


def _json(read: Callable[[Any], object]) -> Callable[[str], object]:
    """A parser of JSON values from Spark, which accepts the same text as Python's own parser."""

    def parse(text: str) -> object:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return read(value)

    return parse


_PROCESSOR = b"""name: late
source: {connection: prod, subscribe: "flights", stateRetention: 1h}
steps:
  - decode: {format: {json: 'carrier string'}}
  - sql: SELECT * FROM input
  - windows: {on: dep, by: [carrier], window: {hopping: {size: 2m, hop: 1m}}, aggregate: {n: count(*)}, prepartitioned: true}
sink: {connection: warehouse, table: delays}
dead_letters: {connection: prod, topic: late.dlq, max_share: 0.2}
"""
_TIME = PartitionTime(600, At(590), Progress(3, 7), next_offset=9, idle_since_ms=10, seen_ms=20)
_OFFSETS = '{"flights":{"0":5,"12":7},"orders":{"3":9}}'
_OFFSET = BatchOffset(7, (OffsetRange(_P0, 3, 5),), {_P1: 9}, 1, "billing")
_FILED = {"billing": {_P0: offset_files.FiledOffset(7, "x"), _P1: offset_files.FiledOffset(None)}}
_EVENT = history.Event(17, "g", "a", "r", history.Kind.PLANNED, {_P0: 5}, (OffsetRange(_P0, 1, 2),), 3, "n")
_SUBSCRIPTION = bytes.fromhex("0000 00000002 0001 61 0002 6263 ffffffff")
_ASSIGNMENT = bytes.fromhex("0000 00000001 0001 61 00000002 00000000 00000001 ffffffff")
_GROUP_METADATA = b"CGMDv2:" + struct.pack("=i", 7) + b"billing\0member-1\0\1"
_SPARK_EVENTS = tuple(
    json.dumps(event["progress"])
    for event in map(json.loads, (_GOLDEN / "spark_events_4.2.jsonl").read_text(encoding="utf-8").splitlines()[:20])
    if event["kind"] == "progress"
)
_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "airport", "type": "string"},
            {"name": "gates", "type": {"type": "array", "items": ["null", "int"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}]},
        ],
    }
)
_AVRO_VALUE = b"\x06JFK\x04\x02\x08\x00\x00\x0a\x02\x02\x07"
_FILE = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
_FILE.package = "board"
_DESCRIPTOR = base64.b64encode(_FILE.SerializeToString()).decode()
_MESSAGE = MessageSchema(None, registered=RegisteredSchema(1, PROTOBUF, _DESCRIPTOR))


def _of_array(codec: Callable[[pa.Array], pa.Array]) -> Callable[[bytes], object]:
    """A codec, which returns a result or a problem for one value."""

    def parse(value: bytes) -> object:
        found = codec(pa.array([value], pa.binary()))
        found.validate(full=True)
        try:
            return found.to_pylist()
        except OverflowError:
            # A date after the year 9999, which Spark has, but not Python.
            return None

    return parse


_PLACED = Placement(Replica("late", 0), "w1", 7, 2)
_ENTRY = (
    write_instance_entry(Observation(_PLACED, Observed.RUNNING, 5, "5f2c", progress=InstanceProgress(3, 9, 4, 7)))[1]
    or b""
)
_FIRST_VERSIONS = bytes.fromhex("00000001 0000 00000002 0012 0000 0004 0044 0000 0001")


def _letter(headers: Any) -> object:
    """The letter of a record with these headers, as the commands print it. ``None`` if it is no letter."""
    if not isinstance(headers, dict):
        return None
    given = tuple((name, str(it).encode(errors="surrogatepass")) for name, it in headers.items())
    found = stored(Message("dlq", 0, 5, 9, None, None, given))
    return document_of(found.letter) if isinstance(found, StoredLetter) else None


PARSERS = (
    Parser("owner's entry", (MemberEntry("alice", "alice-1", 1, 2, "x", "y", 5).encode(),), MemberEntry.parse),
    Parser(
        "reset request", (ResetRequest("5f2c", 5, {"flights": 2}).encode(),), lambda text: ResetRequest.parse(5, text)
    ),
    Parser("processor file", (_PROCESSOR,), lambda content: read_text(content, "late.yaml")),
    Parser("skipped ranges", (SkippedRanges(("a", "b")).encode(),), SkippedRanges.parse),
    Parser("no-data batch", (NoDataBatch("5f2c", 7, 99).encode(),), NoDataBatch.parse),
    Parser("event time", (write_entry(_TIME, TimeSettings(Generation())),), read_time),
    Parser(
        "event time of a group",
        (write_entry(_TIME, TimeSettings(Generation())),),
        lambda text: recorded.time_in_entries({_P0: text}, {_P0: 3}),
    ),
    Parser("checkpoint offset", (json.dumps(encode(_OFFSET)),), _json(decode), (OffsetFormat,)),
    Parser("report", (json.dumps(encode_report("g", "m", {"t": {"0": 5}})),), _json(decode_report)),
    Parser("progress", _SPARK_EVENTS, read_progress, (ValueError,)),
    Parser("history", (history.to_line(_EVENT),), history.parse, (ValueError,)),
    Parser(
        "file of offsets",
        (
            offset_files.to_json(_FILED, {"flights": TopicIdentity("c1", "t1")}, made_at="now", why="test"),
            offset_files.to_csv(_FILED),
        ),
        lambda text: offset_files.parse(text, source="f", group_id="billing"),
        (InvalidOption,),
    ),
    Parser(
        "cursor",
        (cursor_tokens.encode(cursor_tokens.PartitionCursor("flights", 3, 42), b"key", now_ms=0),),
        lambda text: cursor_tokens.decode(text, b"key", now_ms=0),
        (StreamGroupsError,),
    ),
    Parser(
        "dead letter",
        (json.dumps({name: (it or b"").decode(errors="replace") for name, it in to_headers(LETTER)}),),
        _json(_letter),
    ),
    Parser(
        "file of dead letters",
        (json.dumps(document_of(LETTER)),),
        lambda text: parse_lines(text.splitlines(), {LETTER.id: LETTER}, file="f"),
        (InvalidOption,),
    ),
    Parser("subscription", (_SUBSCRIPTION,), parse_subscription, (ValueError, struct.error)),
    Parser("assignment", (_ASSIGNMENT,), parse_assignment),
    Parser("claim", (_GROUP_METADATA,), ConsumerGroupMetadata.parse, (StreamGroupsError,)),
    Parser("Avro schema", (_AVRO,), avro_types.arrow_type.__wrapped__, (InvalidOption,)),
    Parser(
        "Avro value",
        (_AVRO_VALUE,),
        _of_array(lambda values: decode_avro(values, RegisteredSchema(1, AVRO, _AVRO), None)),
    ),
    Parser("Protobuf descriptor", (_DESCRIPTOR,), protobuf_files.registered_file.__wrapped__, (InvalidOption,)),
    Parser(
        "Protobuf value",
        (b"\x08\x07\x10\x05",),
        _of_array(lambda values: decode_protobuf(values, _MESSAGE, None)),
    ),
    Parser("value for a JSON Schema", (b'{"a": [1, "x"]}',), _of_array(lambda values: validate_json(values, "{}"))),
    Parser("header of a value", (b"\x00\x00\x00\x00\x07rest",), split_header, (CannotDecode,)),
    Parser("indexes of a message", (b"\x04\x02\x00rest",), split_indexes, (CannotDecode,)),
    Parser("entry of an instance", (_ENTRY,), lambda value: read_entry(b"observed/late/0", value), (ValueError,)),
    Parser(
        "starting offsets",
        (_OFFSETS, "earliest"),
        lambda text: starting_positions({"startingOffsets": text}, streaming=True),
        (InvalidOption,),
    ),
    Parser(
        "times of starting offsets",
        (_OFFSETS,),
        lambda text: starting_positions({"startingOffsetsByTimestamp": text}, streaming=True),
        (InvalidOption,),
    ),
    Parser(
        "policies of lost data",
        ('{"flights":{"0":"skip","12":"fail"},"orders":"earliest"}',),
        lambda text: loss_policies({"onDataLoss": text}),
        (InvalidOption,),
    ),
    Parser(
        "watermark strategy",
        ("10 records", "5s"),
        lambda text: time_settings({"emitEvery": text}, {}),
        (InvalidOption,),
    ),
    Parser("first version of the versions", (_FIRST_VERSIONS,), group_protocol.parse_versions, (ValueError,)),
)

# ---- corrupt input -------------------------------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, float("inf"), float("-inf"), float("nan"), 10**30, 10**400),
    *(2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 10**18),
    *("", "x", "end", "Infinity", "\ud800", "\0", "\x1b]0;x\x07", "٣", "x" * 5_000),
    *([], [1], [[]], {}, {"t": {}}, {"t": {"0": [5, 3]}}, {"t": {"x": 1}}, {"flights": 10**12}),
)
_TOKENS = (
    *("Infinity", "-Infinity", "NaN", "1e999", "-1e999", "9" * 5_000, "[" * 4_000, '{"v":1,"a":' * 800, "]" * 4_000),
    *("\0", '"', "\\ud800", "null", "\x1b", "\n", ",", "{", "}", "-"),
)
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = tuple(
    struct.pack(form, n) for form, bits in ((">h", 15), (">i", 31)) for n in (-1, -2, 0, 1, 2**bits - 1, -(2**bits))
)


def spoiled(valid: Text, by: random.Random) -> Text:
    """A corrupted copy of the input, or other input."""
    if isinstance(valid, bytes):
        return _spoiled_bytes(valid, by)
    if by.random() < 0.7:
        try:
            value = json.loads(valid)
        except ValueError:
            pass
        else:
            return json.dumps(_spoiled_value(value, by))
    return _spoiled_text(valid, by)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*path, key)
        yield from _places(child, (*path, key))


def _spoiled_value(value: Any, by: random.Random) -> Any:
    value = copy.deepcopy(value)
    for _ in range(by.randint(1, 3)):
        places = list(_places(value))
        if not places:
            return by.choice(_VALUES)
        *path, last = by.choice(places)
        owner = value
        for key in path:
            owner = owner[key]
        if isinstance(owner, dict) and by.random() < 0.3:
            moved = owner.pop(last)
            if by.random() < 0.7:
                owner[by.choice(("", "x", "-1", "9" * 30, "\ud800", "٣", "1_0", " 1"))] = moved
        else:
            owner[last] = copy.deepcopy(by.choice(_VALUES))
    return value


def _spoiled_text(text: str, by: random.Random) -> str:
    for _ in range(by.randint(1, 3)):
        at = by.randint(0, len(text))
        to = min(len(text), at + by.randint(0, 12))
        text = text[:at] + by.choice((*_TOKENS, "", chr(by.randint(0, 0x2FF)))) + text[to:]
    return text[: by.randint(0, len(text))] if by.random() < 0.2 else text


def _spoiled_bytes(data: bytes, by: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(by.randint(1, 4)):
        if found and by.random() < 0.7:
            found[by.randrange(len(found))] = by.choice((*_BYTES, by.randrange(256)))
        else:
            at, number = by.randint(0, len(found)), by.choice(_NUMBERS)
            found[at : at + len(number)] = number
    return bytes(found[: by.randint(0, len(found))] if by.random() < 0.3 else found)


# ---- checks --------------------------------------------------------------------------------------------------------


def check(parser: Parser, given: Text) -> bool:
    """Calls a parser with an input.

    Returns:
        Whether the parser accepted the input.

    Raises:
        AssertionError: if the result is out of bounds.
        Exception: if the parser neither accepts nor rejects the input.
    """
    try:
        found = parser.parse(given)
    except parser.rejects as e:
        str(e).encode("utf-8", "backslashreplace")
        return False
    if found is None:
        return False
    for number in _numbers(found):
        assert -_INT64 <= number < _INT64, f"{parser.name}: {number}"
    if isinstance(found, frozenset):
        assert len(found) <= len(given), parser.name
    if isinstance(found, MemberEntry | ResetRequest | SkippedRanges | NoDataBatch):
        found.encode().encode()
    if isinstance(found, PartitionTime) and isinstance(found.watermark, At):
        assert -_INT64 <= (found.watermark.time_ms - 1) * 1_000 < _INT64, parser.name
    return True


def _numbers(value: object) -> Iterator[int]:
    """All whole numbers in a dataclass and in its values."""
    if isinstance(value, bool | str | bytes | float) or value is None:
        return
    if isinstance(value, int):
        yield value
        return
    if isinstance(value, dict):
        inside: Any = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    else:
        inside = [getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())]
    for it in inside:
        yield from _numbers(it)


def main() -> None:
    """Corrupts input until the time has elapsed. At the first bug it exits with code 1 and prints how to
    reproduce it.
    """
    arguments = argparse.ArgumentParser(description="Fuzzes every parser of what others write.")
    arguments.add_argument("--minutes", type=float, default=1.0, help="for how long")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of the inputs")
    required = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    by, ends_s = random.Random(required.seed), time.monotonic() + required.minutes * 60
    read, accepted = Counter[str](), Counter[str]()
    print(f"seed {required.seed}, {required.minutes:g} min, {len(PARSERS)} parsers", flush=True)
    while time.monotonic() < ends_s:
        for parser in PARSERS:
            given = spoiled(by.choice(parser.valid), by)
            try:
                accepted[parser.name] += check(parser, given)
            except Exception as e:
                print(f"{parser.name} with {given[:2_000]!r}: {type(e).__name__}: {e}", file=sys.stderr)
                sys.exit(1)
            read[parser.name] += 1
    for name, n in read.items():
        print(f"{name:40} {n:>12,} inputs, {accepted[name]:>10,} accepted")
    print(f"{len(read)} parsers, {read.total():,} inputs, no bug, seed {required.seed}")


if __name__ == "__main__":
    main()
