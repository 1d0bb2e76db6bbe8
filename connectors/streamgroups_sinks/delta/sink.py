"""The Delta Lake sink: appends a micro-batch, replaces partitions, or merges by key, exactly once.

Created by users, and called by ``streamgroups_spark``. Implements :class:`streamgroups.ledgers.staging.StagingSink`.
Tasks write data files into the directory of the table that no version of the table contains. The driver adds them in
one commit, together with the positions of the source. Source: SEMANTICS X2-X4; Delta's protocol.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from streamgroups.connections.variants import DeltaConnection
from streamgroups.errors import InvalidOption, SinkRejected
from streamgroups.groups.program import shown_location
from streamgroups.location_uris import path_or_url
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Ledger
from streamgroups.url_logins import has_login
from streamgroups_sinks.delta.atomic_commits import check_atomic_commits
from streamgroups_sinks.delta.connected import address_in, named_connection, storage_options_of
from streamgroups_sinks.delta.data_files import remove_leftovers, write_files
from streamgroups_sinks.delta.expressions import conditions
from streamgroups_sinks.delta.ledger import DeltaLedger
from streamgroups_sinks.delta.schema_conversion import as_delta, check_columns, check_partition_columns, check_simple
from streamgroups_sinks.delta.stages import Stage, Staged
from streamgroups_sinks.delta.store import local_path
from streamgroups_sinks.delta.store_errors import readable
from streamgroups_sinks.delta.tables import Mode, Target, table_id

logger = logging.getLogger(__name__)

_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
#: The parameters of a URL, before its fragment.
_PARAMETERS = re.compile(r"^[^#]*\?[^#]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """A Delta table that a query writes to exactly once.

    Args:
        connection: the name of a connection of type ``delta``. Driver and tasks resolve its secrets.
        uri: the directory of the table: a local path, or a URL of an object store (``s3://bucket/flights``). With a
            connection, it is relative to the location of the connection. ``file:/data/flights`` is a local path.
        storage_options: the options of deltalake for the store. Their secrets are never shown.
        mode: ``append``; ``overwrite_partitions``: a batch replaces the partitions of its rows; ``upsert``: rows
            replace those with the same key.
        key: the columns that identify a row, for ``upsert``. The last row of each key in a batch counts.
        delete_marker: for ``upsert``: a boolean column. A row with true deletes the row with its key. The table does
            not contain this column.
        partition_by: the partition columns of the table. Empty: those of the existing table. A new table is then not
            partitioned.
        create_table: whether to create a missing table.
        schema_evolution: whether missing columns are added to the table.

    Raises:
        InvalidOption: if the settings contradict each other, or a commit could replace another one.

    >>> DeltaSink(uri="/data/flights", mode="upsert", key=("id",)).key
    ('id',)
    >>> DeltaSink(uri="s3://bucket/flights", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"})
    DeltaSink(connection=None, uri='s3://bucket/flights', mode='append', key=(), delete_marker=None, partition_by=(), create_table=True, schema_evolution=False)
    """

    connection: str | DeltaConnection | None = None
    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    mode: Literal["append", "overwrite_partitions", "upsert"] = "append"
    key: tuple[str, ...] = ()
    delete_marker: str | None = None
    partition_by: tuple[str, ...] = ()
    create_table: bool = True
    schema_evolution: bool = False

    def __post_init__(self) -> None:
        for name in ("key", "partition_by"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        _check_options(self.storage_options)
        uri = self.uri
        if self.connection is not None:
            # With its references, so that the tasks do not need the file.
            found = named_connection(self.connection, self.storage_options)
            object.__setattr__(self, "connection", found)
            uri = address_in(found, str(uri))
        object.__setattr__(self, "uri", _absolute(uri))
        self._check_mode()

    def _check_mode(self) -> None:
        modes = [mode.value for mode in Mode]
        if self.mode not in modes:
            raise InvalidOption(f"mode='{self.mode}' is unknown.", remedy=f"Use one of {', '.join(modes)}.")
        merges = self.mode == Mode.UPSERT.value
        if merges and not self.key:
            raise InvalidOption(
                "mode='upsert' requires a key.", remedy="Pass the columns that identify a row: key=('id',)."
            )
        if not merges and (self.key or self.delete_marker):
            what = "key" if self.key else "delete_marker"
            raise InvalidOption(
                f"{what} is not supported with mode='{self.mode}'.", remedy="Use mode='upsert', or leave it out."
            )
        if self.mode == Mode.OVERWRITE_PARTITIONS.value and not self.partition_by:
            raise InvalidOption(
                "mode='overwrite_partitions' requires partition_by.",
                remedy="Pass the partition columns of the table.",
            )
        if self.delete_marker in (*self.key, *self.partition_by):
            raise InvalidOption(
                f"delete_marker='{self.delete_marker}' is a column of the key or of partition_by, and is not stored.",
                remedy="Use a separate column.",
            )

    @property
    def _target(self) -> Target:
        assert not isinstance(self.connection, str), "the constructor replaces the name"
        return Target(
            self.uri,
            storage_options_of(self.connection, self.storage_options, self.uri),
            self.partition_by,
            self.create_table,
            self.schema_evolution,
            Mode(self.mode),
            self.key,
            self.delete_marker,
        )

    @property
    def output(self) -> str:
        """See :attr:`streamgroups.ledgers.staging.StagingSink.output`.

        >>> DeltaSink(uri="s3://bucket/flights/").output
        'delta:s3://bucket/flights'
        """
        return f"delta:{shown_location(self.uri)}"

    def begin(self, schema: pa.Schema, token: str) -> Stage:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.begin`.

        Raises:
            SinkRejected: if the table is missing, does not match the records, or may not be written.
            SinkUnreachable: if the store does not respond.
            LedgerConflict: if other writers change the table continuously. Call it again.
        """
        staged = as_delta(schema)
        self._check_columns(staged)
        stored = pa.schema([column for column in staged if column.name != self.delete_marker])
        table, fit = self._target.prepare(stored)
        merges = self.mode == Mode.UPSERT.value
        actual = tuple(table.metadata().partition_columns)
        # A merge reads the files again.
        partition_by, merge_partition_by = ((), actual) if merges else (actual, ())
        required = fit.required | frozenset(self.key)
        # Without a merge, a table with constraints is rejected.
        rules = tuple(conditions(table).items()) if merges else ()
        return Stage(
            token,
            table_id(table),
            table.version(),
            staged,
            partition_by,
            required,
            self.delete_marker,
            self.key,
            rules,
            merge_partition_by,
        )

    def _check_columns(self, schema: pa.Schema) -> None:
        for argument, names in (("key", self.key), ("partition_by", self.partition_by)):
            check_columns(schema, names, argument)
        check_simple(schema, self.key, "key")
        check_partition_columns(schema, self.partition_by, "partition_by")
        if not set(schema.names) - set(self.partition_by) - {self.delete_marker}:
            raise SinkRejected(
                "The records have only the columns of partition_by.", remedy="A Delta table needs at least one more."
            )
        if self.delete_marker is not None:
            check_columns(schema, [self.delete_marker], "delete_marker")
            if not pa.types.is_boolean(of := schema.field(self.delete_marker).type):
                raise SinkRejected(
                    f"Column '{self.delete_marker}' is of type {of}, but a delete marker must be boolean.",
                    remedy="Cast it to boolean.",
                )

    def write(self, stage: Stage, records: Iterator[pa.RecordBatch], attempt: int) -> Staged:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.write`.

        Raises:
            RecordRejected: if a value is null in a required column or does not fit its column, or a row violates a
                constraint.
            SinkRejected: if this user may not write there.
            SinkUnreachable: if the store does not respond, or is full.
        """
        target = self._target
        with target.translating("writing to"):
            store = target.store()
        return write_files(store, stage, records, attempt, target.translating)

    def open(self, group_id: str) -> AbstractContextManager[Ledger[Sequence[Staged]]]:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.open`.

        Creates a missing table. The first batch adds its columns.

        Raises:
            SinkRejected: if the table is missing and ``create_table`` is off, or it may not be used.
            SinkUnreachable: if the store does not respond.
        """
        self._target.open_or_create(None)
        return nullcontext(DeltaLedger(self._target, group_id))

    def read_ledger(
        self, group_id: str, partitions: Collection[TopicPartition], version: int | None = None
    ) -> tuple[dict[TopicPartition, int], int]:
        """See :meth:`streamgroups.ledgers.staging.VersionedSink.read_ledger`."""
        table = self._target.open(version)
        return DeltaLedger(self._target, group_id).positions_in(table, partitions), table.version()

    def discard(self, stage: Stage) -> None:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.discard`. VACUUM removes the remaining files."""
        try:
            remove_leftovers(self._target, stage)
        except Exception as e:
            cause = readable(e, self._target.secrets())
            logger.warning("Files of %s were left in table %s for VACUUM: %s", stage.directory, self.uri, cause)


def _names(argument: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise InvalidOption(
            f"{argument}={value!r} is not a tuple of column names.", remedy=f"Write {argument}=('a', 'b')."
        )
    if len(set(value)) < len(value):
        raise InvalidOption(f"{argument}={value!r} contains a column twice.", remedy="Use each column once.")
    return tuple(value)


def _absolute(uri: object) -> str:
    """Makes a path absolute, because tasks run in other directories than the driver."""
    if not isinstance(uri, str | os.PathLike) or not os.fspath(uri):
        raise InvalidOption(
            "uri is neither a path nor a URL.", remedy="Use a local path, or a URL such as s3://bucket/table."
        )
    text = path_or_url(str(os.fspath(uri)), "uri")
    if "://" not in text:
        path = os.path.abspath(text)
        _check_path(path, path)
        return path
    # The parameters can be a token of Azure.
    if has_login(text) or _PARAMETERS.search(text):
        raise InvalidOption(
            "uri contains credentials, but errors show the uri.", remedy="Put them into storage_options."
        )
    try:
        urlsplit(text)
    except ValueError:
        # The text of the error can contain the host.
        invalid = InvalidOption("uri has an invalid host.", remedy="Use a URL such as s3://bucket/table.")
        raise invalid from None
    _check_path(text, unquote(text))
    return text


def _check_path(uri: str, decoded: str) -> None:
    """Rejects a path that deltalake cannot read: it decodes the path once more when it reads the log.

    A backslash becomes a slash, except an encoded one in a URL of an object store. So the log would be read in another directory.
    """
    found = _ENCODED.search(decoded)
    changed = "\\" if "\\" in (uri if local_path(uri) is None else decoded) else found and found[0]
    if changed:
        raise InvalidOption(
            f"The path of uri contains '{changed}', which deltalake changes when it reads the log of the table.",
            remedy="Use a path without a backslash, and without '%' before two hexadecimal digits.",
        )


def _check_options(options: object) -> None:
    if not isinstance(options, Mapping) or not all(
        isinstance(part, str) for option in options.items() for part in option
    ):
        raise InvalidOption(
            "storage_options must be a mapping of text to text.", remedy="Write numbers as text, such as '30'."
        )
    check_atomic_commits(options)
