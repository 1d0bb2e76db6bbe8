"""``streamgroups topics tail``: the last records of a topic, and then those that come.

Nothing is joined or committed. A stream has no end, so ``json`` is one object a line, ``yaml`` one document a record. What is not text
is shown as hexadecimal digits, and nothing that is shown can move a terminal's cursor.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any

import typer

from streamgroups.cli.connecting import Cluster, Connect, with_cluster
from streamgroups.cli.groups.scope import partitions_of
from streamgroups.cli.output import Output, OutputOption
from streamgroups.cli.words import utc
from streamgroups.groups.resets import parse_scope, require_bounds
from streamgroups.partitions import TopicPartition
from streamgroups.ports import StoredRecord

_COLUMNS = ("time", "topic", "partition", "offset", "key", "value")
_CHARACTERS_SHOWN = 200


class Show(str, Enum):
    """How keys and values are shown."""

    auto = "auto"
    text = "text"
    hex = "hex"


@with_cluster
def tail(
    connect: Connect,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1]", help="Topics, or some of their partitions.")],
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, metavar="N", help="So many records of each partition.")
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written; Ctrl-C ends it.")] = False,
    show: Annotated[
        Show, typer.Option(help="Keys and values: auto is text where it is printable UTF-8, else hexadecimal.")
    ] = Show.auto,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long values in tables.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show the last records of topics."""
    scope = parse_scope(topics)
    printer = _Printer(output, show, full)
    with connect() as cluster:
        partitions = partitions_of(cluster, scope)
        bounds = require_bounds(cluster.topics.bounds(partitions))
        ends = {tp: b.end_offset for tp, b in bounds.items()}
        beginnings = {tp: b.beginning_offset for tp, b in bounds.items()}
        printer.print(
            sorted(_last(cluster, beginnings, ends, last), key=lambda r: (r.timestamp_ms, r.topic_partition, r.offset))
        )
        if follow:
            try:
                printer.print(cluster.topics.read(ends, None))
            except KeyboardInterrupt:
                return


def _last(
    cluster: Cluster, beginnings: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], count: int
) -> Iterator[StoredRecord]:
    """The last records of each partition: where offsets have gaps, further back is looked for them."""
    back = count
    waiting = set(ends) if count else set()
    while waiting:
        starts = {tp: max(beginnings[tp], ends[tp] - back) for tp in waiting}
        found: defaultdict[TopicPartition, deque[StoredRecord]] = defaultdict(lambda: deque(maxlen=count))
        for record in cluster.topics.read(starts, {tp: ends[tp] for tp in waiting}):
            found[record.topic_partition].append(record)
        enough = {tp for tp in waiting if len(found[tp]) == count or starts[tp] == beginnings[tp]}
        for tp in enough:
            yield from found[tp]
        waiting -= enough
        back *= 4


class _Printer:
    def __init__(self, output: Output, show: Show, full: bool) -> None:
        self._output, self._show, self._full = output, show, full
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        self._headed = False

    def print(self, records: Iterable[StoredRecord]) -> None:
        for record in records:
            self._one(record)
            # A follower's reader wants to see each record when it comes.
            sys.stdout.flush()

    def _one(self, record: StoredRecord) -> None:
        if self._output is Output.json:
            print(json.dumps(self._document(record), ensure_ascii=False))
        elif self._output is Output.yaml:
            import yaml

            print("---")
            yaml.safe_dump(self._document(record), sys.stdout, sort_keys=False, allow_unicode=True)
        elif self._output is Output.csv:
            if not self._headed:
                self._csv.writerow(_COLUMNS)
                self._headed = True
            self._csv.writerow([*self._place(record), self._words(record.key), self._words(record.value)])
        else:
            key, value = (self._cut(self._words(field)) for field in (record.key, record.value))
            print(f"{utc(record.timestamp_ms)} {record.topic_partition}@{record.offset} {key} {value}")

    def _place(self, record: StoredRecord) -> list[str | int | None]:
        tp = record.topic_partition
        return [utc(record.timestamp_ms), tp.topic, tp.partition, record.offset]

    def _document(self, record: StoredRecord) -> dict[str, Any]:
        headers = [[name, self._words(value)] for name, value in record.headers]
        key, value = self._words(record.key), self._words(record.value)
        return {**dict(zip(_COLUMNS, [*self._place(record), key, value], strict=True)), "headers": headers}

    def _words(self, field: bytes | None) -> str | None:
        return None if field is None else words_of(field, self._show)

    def _cut(self, text: str | None) -> str:
        if text is None:
            return "null"
        safe = text if text.isprintable() else json.dumps(text, ensure_ascii=True)
        if self._full or len(safe) <= _CHARACTERS_SHOWN:
            return safe
        return f"{safe[:_CHARACTERS_SHOWN]}… ({len(safe)} characters)"


def words_of(field: bytes, show: Show) -> str:
    """A key or value as text or as hexadecimal digits.

    >>> words_of(b"BOS", Show.auto), words_of(b"\\xff\\x00", Show.auto), words_of(b"BOS", Show.hex)
    ('BOS', '0xff00', '0x424f53')
    >>> words_of(b"\\x1b[2J", Show.auto)  # would clear a terminal
    '0x1b5b324a'
    >>> words_of(b"\\xff!", Show.text)
    '�!'
    """
    if show is Show.text:
        return field.decode(errors="replace")
    if show is Show.auto:
        try:
            text = field.decode()
        except UnicodeDecodeError:
            text = "\0"
        if all(c.isprintable() or c in "\t\r\n" for c in text):
            return text
    return f"0x{field.hex()}"
