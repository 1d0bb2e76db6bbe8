"""The PostgreSQL sink: its options, and the phases begin, write, commit, discard.

Created by users as ``sg.PostgresSink``, and called by ``streamgroups_spark``. Implements
:class:`streamgroups.ledgers.staging.StagingSink`. Source: SEMANTICS X1-X4.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import pyarrow as pa

from streamgroups.connections.variants import PostgresConnection
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption, SinkRejected, StreamGroupsError
from streamgroups.ledgers.staging import Isolated
from streamgroups_sinks.postgres.bad_row_search import isolate_rows
from streamgroups_sinks.postgres.blocks import are_storable
from streamgroups_sinks.postgres.check_constraints import find_checks
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn, check_not_system, record_columns
from streamgroups_sinks.postgres.connected import conninfo_of, named_connection
from streamgroups_sinks.postgres.connection import check_conninfo, connected, set_up, translated_errors
from streamgroups_sinks.postgres.copy_to_stage import copy_into
from streamgroups_sinks.postgres.ledger import PostgresLedger
from streamgroups_sinks.postgres.output_table import ExistingTable, RequiredTable, find, judge, make, where_to_make
from streamgroups_sinks.postgres.stages import (
    PREFIX,
    PostgresStage,
    PostgresStaged,
    drop_dead_stages,
    drop_stage,
    make_stage,
    stage_columns,
)
from streamgroups_sinks.postgres.table_names import TableName
from streamgroups_sinks.postgres.write_statements import Constraints, choose, find_constraints

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink:
    """A table in PostgreSQL, and the mode of its writes.

    Args:
        connection: the name of a connection of type ``postgres``. Driver and tasks resolve its secrets.
        conninfo: libpq's connection string or URL. It is used on the driver and in the tasks, and never shown. Required
            without a connection. Beside a connection it adds parameters.
        table: ``table`` or ``schema.table``. Names are case-sensitive.
        mode: ``append``, or ``upsert``: update the row with the record's key, or insert it.
        key: the columns of the key, for ``upsert``. The table needs a unique index on them.
        delete_marker: a boolean column of the records, for ``upsert``. A record with true deletes the row with its key.
            The table does not contain this column.
        create_table: whether to create a missing table.
        ledger_table: the table of the positions, created if it is missing. It is in the same database, and any number
            of groups and tables can share it.
        stage_schema: the schema of the stages with uncommitted output. Default: the schema of the table.
        stage_retention: a duration. A later batch drops a stage of this age as uncommitted output of a killed run. It
            must be longer than a batch.
        isolate_violations: whether single rows that a UNIQUE, FOREIGN KEY or EXCLUDE constraint rejects become dead
            letters. Requires ``dead_letters`` of :func:`sg.exactly_once` in the same database. A batch with such rows is
            written several times.

    Raises:
        InvalidOption: if settings are missing, malformed, or contradict each other.

    >>> PostgresSink(conninfo="postgresql://me:secret@db/flights", table="flights", mode="upsert", key=("flight", "date")).table
    'flights'
    """

    connection: str | PostgresConnection | None = None
    conninfo: str = field(default="", repr=False)
    table: str
    mode: Literal["append", "upsert"] = "append"
    key: tuple[str, ...] = ()
    delete_marker: str | None = None
    create_table: bool = True
    ledger_table: str = "streamgroups_ledger"
    stage_schema: str | None = None
    stage_retention: str = "1 day"
    isolate_violations: bool = False

    def __post_init__(self) -> None:
        if self.connection is None:
            check_conninfo(self.conninfo)
        else:
            # With its references, so that the tasks do not need the file.
            object.__setattr__(self, "connection", named_connection(self.connection, self.conninfo))
        for option in ("table", "ledger_table"):
            TableName.parse(getattr(self, option), option)
        if self.table == self.ledger_table:
            raise InvalidOption(
                f"'table' and 'ledger_table' are both '{self.table}'.", remedy="Use a separate table for the ledger."
            )
        if self.stage_schema is not None:
            TableName.parse(f"{self.stage_schema}.stage", "stage_schema")
        if not self._stage_retention_ms:
            raise InvalidOption(
                f"Option 'stage_retention' is '{self.stage_retention}', which is 0.",
                remedy="Set it to more than the maximum duration of a batch, such as '1 day'.",
            )
        self._check_mode()

    @property
    def _login(self) -> str:
        """The connection string, with its secrets."""
        assert not isinstance(self.connection, str), "the constructor replaces the name"
        return conninfo_of(self.connection, self.conninfo)

    @property
    def _stage_retention_ms(self) -> int:
        return parse_duration_ms(self.stage_retention, option="stage_retention")

    def _check_mode(self) -> None:
        if self.mode not in ("append", "upsert"):
            raise InvalidOption(f"'mode' is {self.mode!r}.", remedy="It is 'append' or 'upsert'.")
        if not isinstance(self.key, tuple) or not all(isinstance(name, str) and name for name in self.key):
            raise InvalidOption(
                f"'key' is {self.key!r}.", remedy='Pass the names of its columns: key=("flight", "date").'
            )
        if len(set(self.key)) < len(self.key):
            raise InvalidOption(
                f"'key' contains a column twice: {', '.join(self.key)}.", remedy="Use each column once."
            )
        if self.mode == "upsert" and not self.key:
            raise InvalidOption(
                "mode='upsert' requires a key.", remedy='Pass the names of its columns: key=("flight", "date").'
            )
        if self.mode == "append" and (self.key or self.delete_marker is not None):
            given = "key" if self.key else "delete_marker"
            raise InvalidOption(
                f"mode='append' does not support '{given}'.", remedy=f"Set mode='upsert', or leave '{given}' out."
            )
        if self.delete_marker == "" or self.delete_marker in self.key:
            raise InvalidOption(
                f"'delete_marker' is {self.delete_marker!r}.",
                remedy="Set it to a boolean column of the records that is not in the key.",
            )

    @property
    def output(self) -> str:
        """See :attr:`streamgroups.ledgers.staging.StagingSink.output`.

        >>> PostgresSink(conninfo="postgresql://me:secret@db/flights", table="flights").output
        'postgres:flights (ledger streamgroups_ledger)'
        """
        return f"postgres:{self.table} (ledger {self.ledger_table})"

    def begin(self, schema: pa.Schema, token: str) -> PostgresStage:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.begin`.

        Raises:
            SinkRejected: if the table does not match the records, is missing and must not be created, or cannot have a
                column of the records. Nothing is changed.
            NotAuthorized: if a privilege is missing. Nothing is changed.
            InvalidOption: if the records have no column of the key or no delete marker.
            SinkUnreachable: if the server does not respond.
        """
        columns = record_columns(schema)
        self._check_columns(columns)
        doing = f"Beginning a batch for {self.table}"
        with connected(self._login, doing) as connection, translated_errors(doing):
            with connection.transaction():
                set_up(connection)
                required = self._required(columns)
                found = find(connection, required)
                if found is None and not self.create_table:
                    raise SinkRejected(
                        f"Table {self.table} does not exist.",
                        remedy="Create it, set create_table=True, or correct its name (names are case-sensitive).",
                    )
                found = found or make(connection, required)
                judge(found, required)
                stage_schema = where_to_make(connection, self.stage_schema or found.table.schema, "the batch's stage")
                checks = find_checks(connection, found.table, [column.name for column in required.columns])
                name = TableName(stage_schema, PREFIX + token)
                constraints = find_constraints(connection, found.oid, found.columns, self.key)
                stage = self._stage(schema, columns, found, name, constraints, has_checks=bool(checks))
                n_checked = make_stage(connection, stage, checks)
                way = choose(constraints, is_upsert=bool(self.key), n_checked=n_checked)
            drop_dead_stages(connection, stage_schema, older_than_s=self._stage_retention_ms / 1_000)
        return replace(stage, way=way)

    def write(self, stage: PostgresStage, records: Iterator[pa.RecordBatch], attempt: int) -> PostgresStaged:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.write`. A task without records opens no connection.

        Raises:
            RecordRejected: if a value is rejected. The error contains column and row.
            StageLost: if the stage no longer exists.
            SinkUnreachable: if the server does not respond.
        """
        batches = (batch for batch in records if len(batch))
        first = next(batches, None)
        if first is None:
            return PostgresStaged(stage, attempt, 0)
        with connected(self._login, f"Staging rows for {stage.table}") as connection:
            return copy_into(connection, stage, chain([first], batches), attempt)

    @contextmanager
    def open(self, group_id: str) -> Iterator[PostgresLedger]:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.open`.

        Raises:
            SinkUnreachable: if the server does not respond.
            SinkRejected: if another relation has the name of the ledger.
            NotAuthorized: if this user may not use or create the ledger.
        """
        ledger = PostgresLedger(self._login, TableName.parse(self.ledger_table, "ledger_table"), group_id)
        try:
            ledger.open()
            yield ledger
        finally:
            ledger.close()

    def isolate(self, staged: Sequence[PostgresStaged], most: int) -> Isolated:
        """See :meth:`streamgroups.ledgers.staging.IsolatingSink.isolate`. The sink has ``isolate_violations``.

        Raises:
            LedgerConflict: if another transaction conflicts. Call it again.
            StageLost: if staged rows are missing.
            SinkUnreachable: if the server does not respond.
        """
        with connected(self._login, f"Finding the rows that {self.table} rejects") as connection:
            return isolate_rows(connection, staged, most)

    def discard(self, stage: PostgresStage) -> None:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.discard`. A later batch drops the stage after a failure."""
        doing = f"Dropping {stage.name}"
        try:
            with connected(self._login, doing) as connection, translated_errors(doing):
                drop_stage(connection, stage.name)
        except StreamGroupsError as e:
            logger.info("A stage could not be dropped and remains for now. %s", e)

    def _check_columns(self, columns: tuple[RecordColumn, ...]) -> None:
        kinds = {column.name: column.kind for column in columns}
        check_not_system(name for name in kinds if name != self.delete_marker)
        for name in self.key:
            if name not in kinds:
                raise InvalidOption(
                    f"The records have no column '{name}', which is in the key.",
                    remedy=f"The columns are {', '.join(kinds)}.",
                )
        if self.delete_marker is not None and kinds.get(self.delete_marker) is not Kind.BOOLEAN:
            raise InvalidOption(
                f"The records have no boolean column '{self.delete_marker}', which is the delete marker.",
                remedy="Add it to the query, or leave 'delete_marker' out.",
            )

    def _required(self, columns: tuple[RecordColumn, ...]) -> RequiredTable:
        return RequiredTable(
            TableName.parse(self.table, "table"),
            tuple(column for column in columns if column.name != self.delete_marker),
            self.key,
            self.delete_marker is not None,
        )

    def _stage(
        self,
        schema: pa.Schema,
        columns: tuple[RecordColumn, ...],
        found: ExistingTable,
        name: TableName,
        constraints: Constraints,
        *,
        has_checks: bool,
    ) -> PostgresStage:
        made_of = stage_columns(columns, found.columns, self.key, self.delete_marker)
        is_numbered = bool(self.key) or self.isolate_violations or constraints.refers_to_itself
        in_blocks = not is_numbered and not has_checks and found.takes_copies and are_storable(made_of)
        return PostgresStage(
            name,
            found.table,
            made_of,
            self.key,
            self.delete_marker,
            is_numbered,
            in_blocks,
            kept=schema if self.isolate_violations and self.delete_marker is not None else None,
        )
