"""``streamgroups topics produce``: writes the lines of a file, or of standard input, as records.

``streamgroups_cli.topics`` imports it. :mod:`streamgroups.record_lines` parses the lines. All lines of a file are
checked before the first one is written. Source: ``kafka-console-producer.sh``.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from streamgroups.errors import InvalidOption, PartlyDone, StreamGroupsError, UnknownTopic
from streamgroups.partitions import TopicDescription
from streamgroups.record_lines import NewRecord, json_record, text_record
from streamgroups.shell_quoting import command
from streamgroups_cli.connection import Connect, timeout_s
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message

if TYPE_CHECKING:
    from streamgroups_kafka.client.config import ClientConfig
    from streamgroups_kafka.write.record_producer import RecordProducer


#: The minimum number of records per second. Python cannot sleep for centuries.
_MIN_RATE = 0.001


def open_writer(config: ClientConfig, topic: str, timeout_s: float) -> RecordProducer:
    """Creates a producer for a real cluster. Tests replace this function."""
    from streamgroups_kafka.write.record_producer import RecordProducer

    return RecordProducer(config, topic, timeout_s)


@with_options
def produce(
    connect: Connect,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to read. Default: standard input.", show_default=False)
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text between key and value of a line; \\t for a tab. Default: no key."),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Each line is a JSON object: key, value, headers, partition, timestamp."),
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Maximum number of records per second.", show_default=False)
    ] = None,
) -> None:
    """Write records to an existing topic, one for each line."""
    separator = _separator(key_separator, json=json)
    if rate is not None and not rate >= _MIN_RATE:
        raise InvalidOption(f"Option '--rate' is {rate:g}.", remedy=f"It must be at least {_MIN_RATE}.")
    with ExitStack() as stack:
        lines: BinaryIO = sys.stdin.buffer if file is None else stack.enter_context(_opened(file))
        with connect() as cluster:
            described = cluster.topics.describe_topics([topic], operation="Write")
            if topic not in described:
                raise UnknownTopic(
                    f"Topic '{topic}' does not exist; nothing was written.",
                    remedy=f"Create it with: {command('topics create', [topic], '--partitions 4')}.",
                    topic=topic,
                )
            if file is None and sys.stdin.isatty():
                print_message("Write one record on each line. Ctrl-D ends the input.")
            target = described[topic]
            if file is not None and file.is_file():
                for _ in _records(lines, file, separator, target, json=json):
                    pass
                lines.seek(0)
            writer = open_writer(cluster.config, topic, timeout_s(connect.timeout))
            _write(writer, topic, _paced(_records(lines, file, separator, target, json=json), rate))


def _separator(text: str | None, *, json: bool) -> bytes | None:
    if text is None:
        return None
    if json:
        raise InvalidOption("--key-separator and --json exclude each other.", remedy="Omit one of them.")
    if not text:
        raise InvalidOption("Option '--key-separator' is empty.", remedy="Use a text such as ':', or omit it.")
    return text.replace("\\t", "\t").encode()


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as e:
        raise InvalidOption(f"{file} cannot be read: {e.strerror}.", remedy="Use a file with one record a line.") from e


def _records(
    lines: Iterable[bytes], file: Path | None, separator: bytes | None, target: TopicDescription, *, json: bool
) -> Iterator[NewRecord]:
    partitions = len(target.partitions)
    for number, line in enumerate(lines, 1):
        where = f"{'Standard input' if file is None else file}, line {number}"
        # The mark belongs to the file. In a key it would select another partition.
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if json and not content.strip():
            continue
        record = json_record(content, where=where) if json else text_record(content, separator, where=where)
        if record.partition is not None and record.partition >= partitions:
            raise InvalidOption(
                f"{where}: partition {record.partition} of topic '{target.name}' does not exist.",
                remedy=f"It has {partitions} partitions, from 0.",
                topic=target.name,
            )
        yield record


def _paced(records: Iterator[NewRecord], rate: float | None) -> Iterator[NewRecord]:
    started_s = time.monotonic()
    for n, record in enumerate(records):
        if rate is not None:
            time.sleep(max(0.0, started_s + n / rate - time.monotonic()))
        yield record


def _write(writer: RecordProducer, topic: str, records: Iterator[NewRecord]) -> None:
    error: StreamGroupsError | None = None
    is_interrupted = False
    try:
        for record in records:
            writer.write(record)
    except StreamGroupsError as e:
        error = e
    except KeyboardInterrupt:
        is_interrupted = True
    try:
        writer.flush()
    except StreamGroupsError as e:
        error = error or e
    count = writer.written.total()
    if error is not None and not count:
        raise error
    if error is not None:
        raise PartlyDone(
            f"{_counted(count)} written to '{topic}'. Then: {error.what}",
            remedy=f"{error.remedy} A repeated input writes the first records again.",
            topic=topic,
        )
    each = ", ".join(f"{partition}: {n}" for partition, n in sorted(writer.written.items()))
    written = f"{_counted(count)} written to '{topic}'{f' (by partition: {each})' if each else ''}."
    if is_interrupted:
        what = f"{written} The command was interrupted."
        remedy = "A repeated input writes the first records again."
        ended = PartlyDone(what, remedy=remedy, topic=topic) if count else StreamGroupsError(what, topic=topic)
        print_message(str(ended))
        raise KeyboardInterrupt(str(ended)) from ended
    print_message(written)


def _counted(count: int) -> str:
    return f"{count} record{' was' if count == 1 else 's were'}"
