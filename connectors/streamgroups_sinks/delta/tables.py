"""Opens and creates the table, and checks that the records can be written to it.

Called by ``sink`` when a batch begins and by ``ledger`` when it is committed. Each change of the table commits against
exactly the version that was read (``max_commit_retries=0``). Two members that create or change it concurrently
therefore do not overwrite each other's changes. Source: Delta's protocol, "Delta Log Entries" (a version is written
once) and "Change Metadata".

The ledger can be opened before the columns of the first batch are known. The table then has one placeholder column,
which the first batch replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from streamgroups.connections.secret_names import secrets_in
from streamgroups.errors import LedgerConflict, SinkRejected
from streamgroups_sinks.delta.expressions import generated_columns
from streamgroups_sinks.delta.schema_conversion import Fit, as_delta, check_partition_columns, fit, nullable
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.store_errors import translated, translating
from streamgroups_sinks.delta.writer_features import Demands, check_files_may_be_added, check_ledger

#: The placeholder column of a table with a ledger and without output.
NO_OUTPUT_YET = "streamgroups_no_output_yet"
#: No retries: a commit succeeds only against the version that was read.
EXACTLY = 0
_RETRY_TIMEOUT_S = 30.0
_NTZ = "timestampNtz"
_T = TypeVar("_T")


class Mode(Enum):
    """The effect of a batch on the table. The values are those of the option ``mode``."""

    APPEND = "append"
    OVERWRITE_PARTITIONS = "overwrite_partitions"
    UPSERT = "upsert"


class Overtaken(Exception):
    """The table has a newer version than the one that was read. The caller reads it again."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address and write options of a table.

    Args:
        uri: an absolute path or a URL.
        storage_options: the options of deltalake for the store.
        partition_by: the partition columns. Empty: those of the existing table.
        create_table: whether to create a missing table.
        schema_evolution: whether to add missing columns.
        mode: the effect of a batch.
        key: the columns by which rows are merged.
        delete_marker: the column that is true in rows to delete. It is not stored.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    partition_by: tuple[str, ...]
    create_table: bool
    schema_evolution: bool
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = ()
    delete_marker: str | None = None

    def secrets(self) -> tuple[str, ...]:
        """Returns the texts that no error may contain."""
        return secrets_in(self.storage_options)

    def translating(self, doing: str) -> AbstractContextManager[None]:
        """See :func:`streamgroups_sinks.delta.store_errors.translating`."""
        return translating(doing, self.uri, self.secrets)

    def open(self, version: int | None = None) -> DeltaTable:
        """Opens a version of the table; the current one by default.

        Raises:
            SinkRejected: if it is missing, may not be read, or expires transaction identifiers.
            SinkUnreachable: if the store does not respond.
        """
        with self.translating("reading"):
            table = DeltaTable(self.uri, version, storage_options=dict(self.storage_options))
            check_ledger(table.metadata().configuration, uri=self.uri)
            return table

    def store(self) -> Store:
        """Returns the files of the table. Raises the errors of the store."""
        return Store(self.uri, self.storage_options)

    def exists(self) -> bool:
        """Returns whether the table exists."""
        with self.translating("reading"):
            return bool(DeltaTable.is_deltatable(self.uri, dict(self.storage_options)))

    def open_or_create(self, records: pa.Schema | None) -> DeltaTable:
        """Opens the table. Creates a missing one for these records, or with the placeholder column.

        Raises:
            StreamGroupsError: as :meth:`open` does.
        """
        if self.exists() or not self.create_table:
            return self.open()
        columns = self._no_columns() if records is None else nullable(records)
        try:
            with self.translating("creating"):
                return DeltaTable.create(
                    self.uri,
                    Schema.from_arrow(columns),
                    mode="error",
                    partition_by=list(self.partition_by),
                    storage_options=dict(self.storage_options),
                    commit_properties=CommitProperties(max_commit_retries=EXACTLY),
                )
        except SinkRejected:
            # Another writer has created it in the meantime, or it cannot be created.
            if self.exists():
                return self.open()
            raise

    def _no_columns(self) -> pa.Schema:
        return pa.schema(
            [pa.field(NO_OUTPUT_YET, pa.bool_()), *(pa.field(name, pa.string()) for name in self.partition_by)]
        )

    def fits(self, table: DeltaTable, records: pa.Schema) -> Fit:
        """Compares these records with the table.

        Args:
            table: the current table.
            records: the records to store, in Delta's types.

        Raises:
            SinkRejected: if they do not match. The error contains the remedy.
        """
        self._check_partitioning(table, records)
        # deltalake executes merges and checks constraints itself.
        if self.mode is not Mode.UPSERT:
            replaces = self.mode is Mode.OVERWRITE_PARTITIONS
            check_files_may_be_added(_demands(table), uri=self.uri, replaces=replaces)
        return fit(table_schema(table), records, uri=self.uri, generated=generated_columns(table))

    def _check_partitioning(self, table: DeltaTable, records: pa.Schema) -> None:
        actual = tuple(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != actual:
            raise SinkRejected(
                f"Table {self.uri} is partitioned by {_listed(actual)}, not by {_listed(self.partition_by)}.",
                remedy=f"Use partition_by={actual!r}, or write to another table.",
            )
        if missing := [name for name in actual if name not in records.names]:
            raise SinkRejected(
                f"Table {self.uri} is partitioned by '{missing[0]}', but the records have no such column.",
                remedy="Add it to the records.",
            )
        check_partition_columns(records, actual, "the table's partitioning")

    def prepare(self, records: pa.Schema) -> tuple[DeltaTable, Fit]:
        """Returns the table after its creation or the necessary changes for these records.

        Raises:
            StreamGroupsError: with the remedy. Nothing is changed.
        """
        conflict = LedgerConflict(
            f"Other writers change table {self.uri} faster than the sink can prepare it.", remedy="Try again."
        )
        return until_no_conflict(lambda: self._prepare(records), _RETRY_TIMEOUT_S, conflict)

    def _prepare(self, records: pa.Schema) -> tuple[DeltaTable, Fit]:
        table = self.open_or_create(records)
        if NO_OUTPUT_YET in table_schema(table).names:
            self._put_columns_in_place(table, records)
            raise Overtaken
        found = self.fits(table, records)
        if found.new:
            self._add_columns(table, found)
            raise Overtaken
        return table, found

    def _put_columns_in_place(self, table: DeltaTable, records: pa.Schema) -> None:
        self._check_partitioning(table, records)
        self._with_features(table, records)
        with self._changing(table):
            table.create_write_transaction(
                [],
                "overwrite",
                Schema.from_arrow(nullable(records)),
                list(table.metadata().partition_columns),
                commit_properties=CommitProperties(max_commit_retries=EXACTLY),
            )

    def _add_columns(self, table: DeltaTable, found: Fit) -> None:
        names = _listed(tuple(new.name for new in found.new))
        if not self.schema_evolution:
            raise SinkRejected(
                f"Table {self.uri} has no column {names}.",
                remedy="Set schema_evolution=True to add it, or leave it out of the records.",
            )
        columns = nullable(pa.schema(found.new))
        self._with_features(table, columns)
        with self._changing(table):
            table.alter.add_columns(
                list(Schema.from_arrow(columns).fields),
                commit_properties=CommitProperties(max_commit_retries=EXACTLY),
            )

    def _with_features(self, table: DeltaTable, columns: pa.Schema) -> None:
        """Adds the feature. Without it deltalake would write such columns and could not read the table again."""
        required = any('"timestamp_ntz"' in f.to_json() for f in Schema.from_arrow(columns).fields)
        if required and _NTZ not in (table.protocol().writer_features or ()):
            with self._changing(table):
                table.alter.add_feature(
                    TableFeatures.TimestampWithoutTimezone,
                    allow_protocol_versions_increase=True,
                    commit_properties=CommitProperties(max_commit_retries=EXACTLY),
                )
            raise Overtaken

    @contextmanager
    def _changing(self, table: DeltaTable) -> Iterator[None]:
        """Commits against one version. Raises ``Overtaken`` if the block fails and a newer version exists."""
        version = table.version()
        try:
            yield
        except Exception as e:
            if self.open().version() > version:
                raise Overtaken from None
            raise translated(e, "changing", uri=self.uri, secrets=self.secrets()) from None


def until_no_conflict(attempt: Callable[[], _T], within_s: float, conflict: LedgerConflict) -> _T:
    """Repeats an attempt that raises ``Overtaken``, and returns its result. Raises ``conflict`` after the given time."""
    until_timeout = Retrying(
        retry=retry_if_exception_type(Overtaken),
        stop=stop_after_delay(within_s),
        wait=wait_random_exponential(multiplier=0.02, max=2),
    )
    try:
        return until_timeout(attempt)
    except RetryError:
        raise conflict from None


def table_id(table: DeltaTable) -> str:
    """Returns the id of the table. A table that is recreated at the same address has another id."""
    return str(table.metadata().id)


def table_schema(table: DeltaTable) -> pa.Schema:
    """Returns the columns of the table, in the types of staged records."""
    return as_delta(pa.schema(table.schema().to_arrow()))


def _demands(table: DeltaTable) -> Demands:
    fields = json.loads(table.schema().to_json())["fields"]
    return Demands(
        features=tuple(table.protocol().writer_features or ()),
        settings=table.metadata().configuration,
        columns={column["name"]: column.get("metadata") or {} for column in fields},
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"
