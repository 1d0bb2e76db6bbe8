"""Reads a queue of dead letters, and the ids of those that were redriven.

All commands under ``dlq`` use it. A queue is a topic, or a table of PostgreSQL. psycopg is imported only when an option names
a database. Tests replace :func:`open_redrive`, :func:`delete_before` and :func:`find_table`, which need a real cluster or server.
Source: SEMANTICS P4, P5; libpq's "Connection Strings".
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from streamgroups.connections.config_file import connection_named
from streamgroups.connections.variants import PostgresConnection
from streamgroups.dlq.redrive import MAX_ATTEMPTS, Redrive, State, redriven_topic, state_of
from streamgroups.dlq.stored_letters import Foreign, Selection, StoredLetter, TableLetter, stored
from streamgroups.dlq.table_letters import AnyForeign, AnyLetter, ForeignRow, LetterTable, letter_of
from streamgroups.errors import NotAuthorized, StreamGroupsError
from streamgroups.extras import explained
from streamgroups.groups.reset_plan import parse_scope, require_bounds
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.positions import parse_time_ms
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect, read_committed, timeout_s
from streamgroups_cli.groups.scope import partitions_of
from streamgroups_cli.output import print_message

DlqArgument = Annotated[str, typer.Argument(metavar="DLQ", help="The topic or the table with the dead letters.")]
_NAME = re.compile(r"[\w.-]+", re.ASCII)


PostgresOption = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        metavar="NAME|CONNINFO",
        help="The database, if DLQ is a table: a connection, or libpq's connection string, such as service=flights.",
        rich_help_panel="PostgreSQL",
    ),
]


def _repeatable(name: str, metavar: str, help_: str, *short: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, *short, metavar=metavar, help=f"{help_}; repeatable.", rich_help_panel="Selection"
    )
    return option


@dataclass(frozen=True, slots=True)
class SelectOptions:
    """The options that select letters.

    Raises:
        InvalidOption: if a time or a partition is malformed.
    """

    id: Annotated[list[str] | None, _repeatable("--id", "ID", "The id of a letter")] = None
    error: Annotated[list[str] | None, _repeatable("--error", "CLASS", "The class of the error")] = None
    step: Annotated[list[str] | None, _repeatable("--step", "STEP", "The step that failed")] = None
    query: Annotated[list[str] | None, _repeatable("--query", "NAME", "The query that failed")] = None
    group: Annotated[list[str] | None, _repeatable("--group", "GROUP", "The group that has read the record", "-g")] = (
        None
    )
    source: Annotated[
        list[str] | None, _repeatable("--source", "TOPIC[:0,1,...]", "The topic of the record, or partitions of it")
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="The earliest time of the failure.", rich_help_panel="Selection"),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Failures before this time.", rich_help_panel="Selection"),
    ] = None

    def __post_init__(self) -> None:
        _ = self.selection

    @property
    def selection(self) -> Selection:
        """The selected letters."""
        return Selection(
            ids=self.id or (),
            errors=self.error or (),
            steps=self.step or (),
            queries=self.query or (),
            groups=self.group or (),
            sources=parse_scope(self.source) if self.source else None,
            since_ms=None if self.since is None else parse_time_ms(self.since, option="--since"),
            until_ms=None if self.until is None else parse_time_ms(self.until, option="--until"),
        )


class Queue(ABC):
    """A queue of dead letters.

    Args:
        cluster: the cluster with the ids of redriven letters.
        dlq: its topic or its table, as the user has named it.
        name: its name in the topic of redriven ids.
        max_attempts: a record that has failed this number of times is parked.
    """

    def __init__(self, cluster: Cluster, dlq: str, name: str, max_attempts: int) -> None:
        self.cluster, self.dlq, self.name, self._max_attempts = cluster, dlq, name, max_attempts
        #: The records or rows that are no dead letters, as far as the queue was read.
        self.foreign: list[AnyForeign] = []

    @abstractmethod
    def letters(self, selection: Selection) -> Iterator[AnyLetter]:
        """Reads the selected letters."""

    def states(self, selection: Selection) -> Iterator[tuple[AnyLetter, State]]:
        """Reads the selected letters, each with its state."""
        redriven = self.redriven()
        for it in self.letters(selection):
            yield it, state_of(it.letter, redriven, self._max_attempts)

    def redriven(self) -> frozenset[str]:
        """Reads the ids of redriven letters."""
        return frozenset(
            record.key.decode(errors="replace") for record in self._redriven_records() if record.key is not None
        )

    def _redriven_records(self) -> Iterator[Message]:
        topic = redriven_topic(self.name)
        try:
            if topic not in self.cluster.topics.describe_topics([topic], operation="Read"):
                return
        except NotAuthorized as e:
            # A redrive has opened the topic before it reads the ids, so it sends no letter again.
            print_message(f"Redriven letters count as waiting, because their ids cannot be read. {e}")
            return
        bounds = require_bounds(self.cluster.topics.bounds(partitions_of(self.cluster, {topic: None})))
        yield from self.cluster.topics.read(
            {tp: it.beginning_offset for tp, it in bounds.items()}, {tp: it.end_offset for tp, it in bounds.items()}
        )

    def warn_of_foreign(self) -> None:
        """Reports the records or rows that are no dead letters."""
        if self.foreign:
            first = self.foreign[0]
            problem = f" ({first.problem})" if first.problem else ""
            count = len(self.foreign)
            print_message(
                f"{count} record{'' if count == 1 else 's'} of '{self.dlq}' {'is' if count == 1 else 'are'} no dead "
                f"letter of this library, such as {first.place}{problem}."
            )


class TopicQueue(Queue):
    """A topic of dead letters.

    Raises:
        UnknownTopic: if the topic does not exist.
    """

    def __init__(self, cluster: Cluster, dlq: str, max_attempts: int) -> None:
        super().__init__(cluster, dlq, dlq, max_attempts)
        self._bounds = require_bounds(cluster.topics.bounds(partitions_of(cluster, {dlq: None})))

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each partition."""
        return {tp: it.end_offset for tp, it in self._bounds.items()}

    @property
    def beginnings(self) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {tp: it.beginning_offset for tp, it in self._bounds.items()}

    @property
    def first_foreign(self) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition that is no letter, as far as the queue was read."""
        first: dict[TopicPartition, int] = {}
        for it in self.foreign:
            if isinstance(it, Foreign):
                first.setdefault(it.topic_partition, it.offset)
        return first

    def letters(self, selection: Selection) -> Iterator[StoredLetter]:
        """See :meth:`Queue.letters`."""
        self.foreign.clear()
        for record in self.cluster.topics.read(self.beginnings, self.ends):
            found = stored(record)
            if isinstance(found, Foreign):
                self.foreign.append(found)
            elif selection.matches(found.letter):
                yield found


class TableQueue(Queue):
    """A table of dead letters.

    Args:
        cluster: the cluster with the ids of redriven letters.
        dlq: the table, as the user has named it.
        table: the table.
    """

    def __init__(self, cluster: Cluster, dlq: str, table: LetterTable, max_attempts: int) -> None:
        super().__init__(cluster, dlq, table.queue, max_attempts)
        self.table = table

    def letters(self, selection: Selection) -> Iterator[TableLetter]:
        """See :meth:`Queue.letters`."""
        self.foreign.clear()
        for row in self.table.rows(selection.ids):
            found = letter_of(row, self.table.table)
            if isinstance(found, ForeignRow):
                self.foreign.append(found)
            elif selection.matches(found.letter):
                yield found


@dataclass(frozen=True, slots=True)
class QueueOptions(Connect):
    """The options of each command about dead letters."""

    postgres: PostgresOption = None
    max_attempts: Annotated[
        int, typer.Option("--max-attempts", min=1, metavar="N", help="A record that has failed N times is parked.")
    ] = MAX_ATTEMPTS

    @contextmanager
    def queue(self, dlq: str) -> Iterator[TopicQueue | TableQueue]:
        """Connects, and finds a queue. The end of the ``with`` block closes the connection.

        Args:
            dlq: its topic or its table.

        Raises:
            StreamGroupsError: if the queue does not exist or is not accessible.
        """
        # Letters of an aborted batch do not exist.
        with read_committed(self)() as cluster:
            if self.postgres is None:
                yield TopicQueue(cluster, dlq, self.max_attempts)
            else:
                yield TableQueue(cluster, dlq, table_of(self.postgres, dlq), self.max_attempts)


def open_redrive(cluster: Cluster, dlq: str, timeout: str) -> AbstractContextManager[Redrive]:
    """Starts a redrive on a real cluster. Tests replace this function."""
    from streamgroups_kafka.dlq import redriving

    return redriving.open_redrive(cluster.config, dlq, timeout_s=timeout_s(timeout))


def delete_before(
    cluster: Cluster, next_offsets: Mapping[TopicPartition, int], timeout: str
) -> dict[TopicPartition, StreamGroupsError]:
    """Deletes records on a real cluster. Tests replace this function."""
    from streamgroups_kafka.dlq import purging

    return purging.delete_before(cluster.config, next_offsets, timeout_s=timeout_s(timeout))


def table_of(given: str, dlq: str) -> LetterTable:
    """Returns the table of a queue.

    Args:
        given: the value of :data:`PostgresOption`.
        dlq: the table.

    Raises:
        StreamGroupsError: if the table is not accessible.
    """
    # A connection string contains an assignment or is a URL, and the name of a connection never is.
    if not _NAME.fullmatch(given):
        return find_table(given, dlq)
    try:
        from streamgroups_sinks.postgres.connected import conninfo_of
    except ImportError as e:
        raise explained(e, "--postgres") from e
    return find_table(conninfo_of(connection_named(given, PostgresConnection), ""), dlq)


def find_table(conninfo: str, table: str) -> LetterTable:
    """Finds a table of a real database. Tests replace this function."""
    try:
        from streamgroups_sinks.postgres.letters import find_letters
    except ImportError as e:
        raise explained(e, "--postgres") from e
    return find_letters(conninfo, table, option="--postgres")
