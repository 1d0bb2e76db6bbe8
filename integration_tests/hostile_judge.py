"""The right results of a query over a hostile topic, by a plain program, and their comparison with its output.

``hostile_topic`` calls it with the records of the generator, and with what independent readers have found. No code of the library is
involved. Each rule is that of the documents, which the comments name. Source: SEMANTICS P4, X9, W7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest.mock import ANY

from integration_tests.hostile_query import LATEST_US, TAKES, WINDOW_MS
from integration_tests.hostile_records import Fields, HostileRecord, Undecodable

_DLQ = "streamgroups.dlq."
#: The years 1 to 9999, which Python's ``datetime`` has (``functions.rst``).
_PYTHON_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
#: The distance from 1970 of event times: 142,599 years (``event-time.rst``).
_EVENT_TIME_MS = 4_500_000_000_000_000
#: The first time of ``timestamptz``: 4714-11-24 BC.
_POSTGRES_US = -210_866_803_200_000_000
_MAX_REQUEST_BYTES = 1_048_588
#: The fee that a ``CHECK`` constraint of the table in PostgreSQL rejects.
REJECTED_FEE = 4_242
#: The classes of errors of the function, by the first word of the text (``hostile_query``).
_RAISED = {
    "!zero": ("ZeroDivisionError",),
    "!missing": ("KeyError",),
    "!secret": ("ValueError",),
    "!silent": ("Silent",),
    "!stop": ("StopIteration",),
    "!deep": ("RecursionError",),
    # Values that do not fit their column.
    "!large": ("OverflowError", "ArrowInvalid"),
    "!text": ("ArrowInvalid", "ArrowTypeError"),
}

#: The place of a record: partition and offset. Of a window: its key and its start in microseconds.
Place: TypeAlias = tuple[Any, Any]
#: A row: the columns of the output, without those of its place.
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter.

    Args:
        step: the step that failed.
        error_classes: the class of its error. An expected letter has one of several.
        attempt: how often its record has failed.
        key: the key of the record.
        value: its value.
        headers: its headers. ``None``: not compared, because the letter is that of a row of the output.
    """

    step: str
    error_classes: tuple[str, ...]
    attempt: int = 1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


@dataclass(slots=True)
class Results:
    """The output of a query: rows and dead letters by their place. A place has several if something is there twice."""

    rows: dict[Place, list[Row]] = field(default_factory=dict)
    letters: dict[Place, list[Letter]] = field(default_factory=dict)

    def add_row(self, place: Place, row: Row) -> None:
        """Adds a row."""
        self.rows.setdefault(place, []).append(row)

    def add_letter(self, place: Place, letter: Letter) -> None:
        """Adds a letter."""
        self.letters.setdefault(place, []).append(letter)


def expected(records: Iterable[HostileRecord], sink: str, shape: str) -> tuple[Results, dict[Place, str]]:
    """Computes the results of a query, and returns the kinds of hostile records, by their place.

    Args:
        records: the records of the topic.
        sink: ``kafka``, ``postgres`` or ``delta``.
        shape: ``rows`` or ``windows``.
    """
    found, kinds, counted = Results(), {}, _Windows()
    for record in records:
        place = (record.partition, record.offset)
        if record.kind:
            kinds[place] = record.kind
        failed, fee = _checked(record, TAKES[sink])
        if failed is None and shape == "windows":
            assert isinstance(record.decoded, Fields)
            failed = counted.add(record, record.decoded, fee)
        if failed is not None:
            found.add_letter(place, _of_source(record, *failed))
        elif shape == "rows":
            assert isinstance(record.decoded, Fields)
            _add_row(found, sink, record, record.decoded, fee)
    for place, row in counted.closed():
        if _window_is_rejected(sink, row[-1]):
            # A letter to Kafka has no value if it is too large, so it does not contain the start.
            found.add_letter((place[0], None if sink == "kafka" else place[1]), Letter("sink", ("RecordRejected",)))
        else:
            found.add_row(place, row)
    return found, kinds


# ---- the steps -------------------------------------------------------------------------------------------------------


def _checked(record: HostileRecord, takes: str) -> tuple[tuple[str, tuple[str, ...]] | None, int | None]:
    """The failure of the first steps, or the fee."""
    it = record.decoded
    if isinstance(it, Undecodable):
        return ("decode", (it.error_class,)), None
    if it.at_us is not None:
        has_object = {
            "record": _PYTHON_US[0] <= it.at_us <= _PYTHON_US[1],
            "pandas": it.at_us != -(2**63),
            "arrow": True,
        }[takes]
        if not has_object:
            return ("checked", ("ValueError",)), None
        if it.at_us > LATEST_US:
            return ("checked", ("FromTheFuture",)), None
    if it.place is not None and (classes := _RAISED.get(it.place.split(" ")[0])):
        return ("checked", classes), None
    return None, None if it.delay is None or it.cents is None else it.delay * 3 + it.cents


class _Windows:
    """Tumbling windows of each partition, without a delay and without allowed lateness."""

    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}
        self._open: dict[tuple[int, bytes | None, int], list[Any]] = {}

    def add(self, record: HostileRecord, it: Fields, fee: int | None) -> tuple[str, tuple[str, ...]] | None:
        """Counts a record, or returns its failure."""
        time_ms = None if it.at_us is None else it.at_us // 1_000
        if time_ms is None or abs(time_ms) > _EVENT_TIME_MS:
            return "windows", ("NoEventTime",)
        start_ms = time_ms - time_ms % WINDOW_MS
        watermark_ms = self._newest_ms.get(record.partition)
        if watermark_ms is not None and start_ms + WINDOW_MS <= watermark_ms:
            return "windows", ("LateRecord",)
        self._newest_ms[record.partition] = max(time_ms, time_ms if watermark_ms is None else watermark_ms)
        sums = self._open.setdefault((record.partition, record.key, start_ms), [0, 0, 0, None])
        sums[0] += 1
        sums[1] += it.n or 0
        sums[2] += fee or 0
        if it.place is not None:
            # Spark compares strings by their bytes.
            sums[3] = max(sums[3] or "", it.place, key=str.encode)
        return None

    def closed(self) -> Iterable[tuple[Place, Row]]:
        """The windows that the watermark of their partition has passed."""
        for (partition, key, start_ms), sums in self._open.items():
            if start_ms + WINDOW_MS <= self._newest_ms[partition]:
                yield (key, start_ms * 1_000), tuple(sums)


def _add_row(found: Results, sink: str, record: HostileRecord, it: Fields, fee: int | None) -> None:
    place = (record.partition, record.offset)
    # The column ``timestamp`` is null for a time outside of 64 bits of microseconds (``reader.rst``).
    time_us = None if record.timestamp_ms is None else record.timestamp_ms * 1_000
    if time_us is not None and abs(time_us) >= 2**63:
        time_us = None
    # A plain record has the time at which it was written. Kafka's sink replaces null by the current time.
    has_time = record.timestamp_ms is not None and (sink != "kafka" or time_us is not None)
    row_is_rejected = {
        # The broker rejects times after ``message.timestamp.after.max.ms``, which is an hour.
        "kafka": (time_us is not None and not 0 <= time_us <= LATEST_US) or _is_large(it.place),
        "postgres": it.n is None
        or fee == REJECTED_FEE
        or "\x00" in (it.place or "")
        or any(us is not None and us < _POSTGRES_US for us in (it.at_us, time_us)),
        "delta": it.n is None,
    }[sink]
    if row_is_rejected:
        found.add_letter(place, Letter("sink", ("RecordRejected",)))
    else:
        found.add_row(place, (it.n, fee, it.at_us, it.place, time_us if has_time else ANY))


def _is_large(place: str | None) -> bool:
    return place is not None and len(place.encode()) > _MAX_REQUEST_BYTES


def _window_is_rejected(sink: str, last: str | None) -> bool:
    # The tables have a column ``last`` that is ``NOT NULL``.
    return {
        "kafka": _is_large(last),
        "postgres": last is None or "\x00" in last,
        "delta": last is None,
    }[sink]


def _of_source(record: HostileRecord, step: str, error_classes: tuple[str, ...]) -> Letter:
    attempts = [value for name, value in record.headers if name == _DLQ + "attempt"]
    failed_before = int(attempts[0]) if attempts and attempts[0] in (b"7",) else 0
    headers = tuple(it for it in record.headers if not it[0].startswith(_DLQ))
    return Letter(step, error_classes, failed_before + 1, record.key, record.value, headers)


# ---- the comparison --------------------------------------------------------------------------------------------------


def differences(right: Results, found: Results, kinds: Mapping[Place, str]) -> list[str]:
    """Returns the differences of an output from the right one, with the kind of their records."""
    report = []
    for what, own, other in (("row", right.rows, found.rows), ("letter", right.letters, found.letters)):
        for place in own.keys() | other.keys():
            required, given = own.get(place, []), other.get(place, [])
            if len(required) == len(given) and all(map(_agrees, required, given)):
                continue
            kind = kinds.get(place, "plain")
            report.append(f"{what} at {_short(place)} ({kind}): expected {_short(required)}, found {_short(given)}")
    return sorted(report)


def _agrees(required: Any, given: Any) -> bool:
    if not isinstance(required, Letter):
        return bool(required == given)
    if required.step != given.step or given.error_classes[0] not in required.error_classes:
        return False
    if required.headers is None:
        return True
    # A letter to Kafka can omit a value that is too large.
    has_value = required.value == given.value or (
        given.value is None and len(required.value or b"") > _MAX_REQUEST_BYTES
    )
    return has_value and (required.attempt, required.key, required.headers) == (given.attempt, given.key, given.headers)


def counts(results: Results) -> Counter[str]:
    """The number of rows, and of letters by their step and class."""
    found = Counter({"rows": sum(map(len, results.rows.values()))})
    for letters in results.letters.values():
        found.update(f"{it.step}: {'/'.join(it.error_classes)}" for it in letters)
    return found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"
