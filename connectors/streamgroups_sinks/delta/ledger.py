"""The ledger in the table's own log: one transaction identifier per source partition, in the commit of the output.

Created by ``sink`` and called by ``streamgroups.ledgers.batch_commit``. Implements :class:`streamgroups.ports.Ledger`.
Source: Delta's protocol, "Transaction Identifiers". A commit can contain ``txn`` actions with the id and version of an
application. Checkpoints of the log keep them, and every reader reads them. Here the id contains the group and a source
partition, and the version is the next offset. A second identifier per partition, ``.../identity``, contains the
identity of topic and cluster. The log stores no text for it, so its version contains fingerprints of both ids
(:func:`streamgroups.identity.fingerprint_bits`).

Compare and swap: positions are read in version n of the table, and only a commit of version n + 1 succeeds. After a
concurrent commit the positions are read again. If they are unchanged, the same files are committed on top. Otherwise
the transaction fails.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from streamgroups.errors import LedgerConflict, SinkRejected, SinkUnreachable, StageLost
from streamgroups.identity import UNKNOWN, TopicIdentity, fingerprint_bits, from_fingerprint_bits
from streamgroups.partitions import TopicPartition
from streamgroups_sinks.delta.merging import merge
from streamgroups_sinks.delta.replacing import removals
from streamgroups_sinks.delta.stages import Stage, Staged
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.store_errors import readable, translated
from streamgroups_sinks.delta.tables import EXACTLY, Mode, Overtaken, Target, table_id


def application_id(group_id: str, partition: TopicPartition) -> str:
    """Returns the application id of a position in the log.

    >>> application_id("billing", TopicPartition("flights", 3)), application_id("a/b", TopicPartition("c", 0))
    ('streamgroups/billing/flights/3', 'streamgroups/a%2Fb/c/0')
    """
    return f"streamgroups/{quote(group_id, safe='')}/{quote(partition.topic, safe='')}/{partition.partition}"


def identity_application_id(group_id: str, partition: TopicPartition) -> str:
    """Returns the application id of the topic identity of a position.

    >>> identity_application_id("billing", TopicPartition("flights", 3))
    'streamgroups/billing/flights/3/identity'
    """
    return f"{application_id(group_id, partition)}/identity"


class DeltaLedger:
    """The positions of one group in one table.

    Args:
        target: an existing table.
        group_id: the group.
        retry_timeout_s: how long a commit is retried after concurrent commits, in seconds.
    """

    def __init__(self, target: Target, group_id: str, *, retry_timeout_s: float = 60.0) -> None:
        self._target, self._group_id, self._retry_timeout_s = target, group_id, retry_timeout_s

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Ledger.positions`."""
        return self.positions_in(self._target.open(), partitions)

    def positions_in(self, table: DeltaTable, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The positions in a version of the table. Raises the errors of :meth:`positions`."""
        return self._positions(table, self._group_id, partitions)

    @contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        """See :meth:`streamgroups.ports.Ledger.transaction`."""
        transaction = _Transaction(self, self._target.open())
        yield transaction
        until_timeout = Retrying(
            retry=retry_if_exception_type(Overtaken),
            stop=stop_after_delay(self._retry_timeout_s),
            wait=wait_random_exponential(multiplier=0.02, max=2),
        )
        try:
            until_timeout(transaction.commit)
        except RetryError:
            raise LedgerConflict(
                f"Other writers commit to table {self._target.uri} faster than group '{self._group_id}'; "
                "nothing was written.",
                remedy="Try again. If the error persists, let the other writers write fewer and larger batches.",
            ) from None

    def _identities(
        self, table: DeltaTable, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TopicIdentity]:
        with self._target.translating("reading"):
            found = {tp: table.transaction_version(identity_application_id(group_id, tp)) for tp in partitions}
        return {tp: _identity(version) for tp, version in found.items() if version}

    def _positions(
        self, table: DeltaTable, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        with self._target.translating("reading"):
            found = {tp: table.transaction_version(application_id(group_id, tp)) for tp in partitions}
        return {tp: version for tp, version in found.items() if version is not None}


class _Transaction:
    """See :class:`streamgroups.ports.LedgerTransaction`."""

    def __init__(self, ledger: DeltaLedger, table: DeltaTable) -> None:
        self._ledger, self._target, self._group_id = ledger, ledger._target, ledger._group_id
        self._table: DeltaTable | None = table
        self._snapshot = table
        self._expected: dict[tuple[str, TopicPartition], int | None] = {}
        self._staged: list[Staged] = []
        self._next_offsets: dict[tuple[str, TopicPartition], int] = {}
        self._known: dict[tuple[str, TopicPartition], TopicIdentity] = {}
        self._identities: dict[tuple[str, TopicPartition], TopicIdentity] = {}

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._positions_of(self._group_id, partitions)

    def write(self, output: Sequence[Staged]) -> None:
        self._staged += output

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        return self._identities_of(self._group_id, partitions)

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        self._advance(self._group_id, next_offsets, identities)

    def of(self, group_id: str) -> _GroupInTransaction:
        return _GroupInTransaction(self, group_id)

    def _positions_of(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._ledger._positions(self._snapshot, group_id, partitions)
        self._expected |= {(group_id, tp): found.get(tp) for tp in partitions}
        return found

    def _identities_of(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TopicIdentity]:
        found = self._ledger._identities(self._snapshot, group_id, partitions)
        self._known |= {(group_id, tp): found.get(tp, UNKNOWN) for tp in partitions}
        return found

    def _advance(
        self,
        group_id: str,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity],
    ) -> None:
        self._positions_of(group_id, [tp for tp in next_offsets if (group_id, tp) not in self._expected])
        self._next_offsets |= {(group_id, tp): n for tp, n in next_offsets.items()}
        new = {tp: identities.get(tp, UNKNOWN) for tp in next_offsets}
        # A position that is set without ids must not keep an old identity.
        self._identities_of(
            group_id, [tp for tp, it in new.items() if it == UNKNOWN and (group_id, tp) not in self._known]
        )
        self._identities |= {(group_id, tp): it for tp, it in new.items()}

    def commit(self) -> None:
        """Commits on top of the version that was read.

        After a concurrent commit it is called again with a newer version.

        Raises:
            Overtaken: if a newer version exists. The positions indicate whether this commit created it.
            StreamGroupsError: see :meth:`streamgroups.ports.Ledger.transaction`.
        """
        table, self._table = self._table or self._open_again(), None
        if not self._next_offsets:
            # Without a position, a restart could not detect whether the output was written.
            if self._staged:
                raise ValueError("output is written with the positions it reaches")
            return
        self._check(table)
        version = table.version()
        try:
            self._write(table)
        except (SinkRejected, StageLost):
            raise
        except Exception as e:
            self._judge(e, version)

    def _open_again(self) -> DeltaTable:
        table = self._target.open()
        groups = {group_id for group_id, _ in self._expected}
        found = {
            (group_id, tp): n
            for group_id in groups
            for tp, n in self._ledger._positions(
                table, group_id, [tp for g, tp in self._expected if g == group_id]
            ).items()
        }
        if changed := sorted(key for key, n in self._expected.items() if found.get(key) != n):
            raise LedgerConflict(
                f"The positions of group {', '.join(sorted({group_id for group_id, _ in changed}))} in table {self._target.uri} have changed meanwhile: "
                f"{', '.join(str(tp) for _, tp in changed)}.",
                remedy="Try again: the sink compares the positions again.",
            )
        return table

    def _check(self, table: DeltaTable) -> None:
        """Repeats the checks of the stages, because another writer may have changed the table since."""
        stages = {staged.stage.token: staged.stage for staged in self._staged}
        for stage in stages.values():
            if table_id(table) != stage.table_id:
                raise SinkRejected(
                    f"Table {self._target.uri} was recreated after the batch began.", remedy="Restart the query."
                )
            fit = self._target.fits(table, _stored(stage, self._target))
            if fit.new or not fit.required <= stage.required:
                raise SinkRejected(
                    f"The columns of table {self._target.uri} have changed since the batch began.",
                    remedy="Restart the query: its next batch uses the new columns.",
                )

    def _write(self, table: DeltaTable) -> None:
        target = self._target
        store = Store(target.uri, target.storage_options)
        files = [file for staged in self._staged for file in staged.files]
        self._check_files(store)
        properties = CommitProperties(max_commit_retries=EXACTLY, app_transactions=self._identifiers())
        actions: list[AddAction | RemoveAction] = []
        if target.mode is Mode.UPSERT:
            version = table.version()
            if files:
                merge(table, store, self._staged, properties, key=target.key, delete_marker=target.delete_marker)
            # A merge without changes commits nothing.
            if table.version() > version:
                return
        else:
            actions += self._additions()
            if target.mode is Mode.OVERWRITE_PARTITIONS:
                actions += removals(table, {file.values for file in files}, uri=target.uri)
        columns = list(table.metadata().partition_columns)
        table.create_write_transaction(actions, "append", table.schema(), columns, commit_properties=properties)

    def _additions(self) -> list[AddAction]:
        return [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values=dict(zip(staged.stage.partition_by, file.values, strict=True)),
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.statistics,
            )
            for staged in self._staged
            for file in staged.files
        ]

    def _check_files(self, store: Store) -> None:
        """Checks that all staged files exist before the log refers to them.

        Only :meth:`DeltaSink.discard` and VACUUM remove them.
        """
        there: dict[str, int] = {}
        for directory in {staged.stage.directory for staged in self._staged if staged.files}:
            there |= store.sizes(directory)
        for staged in self._staged:
            for file in staged.files:
                if there.get(file.path) != file.size_bytes:
                    raise StageLost(
                        f"The staged file {file.path} of table {self._target.uri} is missing or has another size.",
                        remedy=(
                            "Run VACUUM with a retention longer than the duration of a batch; then restart the query."
                        ),
                    )

    def _identifiers(self) -> list[Transaction]:
        now_ms = time.time_ns() // 1_000_000
        positions = [Transaction(application_id(g, tp), n, now_ms) for (g, tp), n in self._next_offsets.items()]
        # The log keeps unchanged identities.
        changed = {
            key: _version(it)
            for key, it in self._identities.items()
            if key not in self._known or _version(it) != _version(self._known[key])
        }
        return positions + [Transaction(identity_application_id(g, tp), n, now_ms) for (g, tp), n in changed.items()]

    def _judge(self, error: Exception, version: int) -> None:
        """Translates a failed commit.

        A newer version is a concurrent commit or this one, which the positions distinguish.
        """
        try:
            newest = self._target.open().version()
        except Exception:
            cause = readable(error, self._target.secrets())
            raise SinkUnreachable(
                f"A batch of group '{self._group_id}' may or may not be committed to table {self._target.uri}: {cause}",
                remedy="Try again: the table's ledger contains the positions of all written batches.",
            ) from None
        if newest > version:
            raise Overtaken from None
        raise translated(
            error, "committing to", uri=self._target.uri, secrets=self._target.secrets(), committing=True
        ) from None


class _GroupInTransaction:
    """One of several groups in a transaction. See :class:`streamgroups.ports.LedgerTransaction`."""

    def __init__(self, transaction: _Transaction, group_id: str) -> None:
        self._transaction, self._group_id = transaction, group_id

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._transaction._positions_of(self._group_id, partitions)

    def write(self, output: Sequence[Staged]) -> None:
        self._transaction.write(output)

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        return self._transaction._identities_of(self._group_id, partitions)

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        self._transaction._advance(self._group_id, next_offsets, identities)

    def of(self, group_id: str) -> _GroupInTransaction:
        return self._transaction.of(group_id)


def _version(identity: TopicIdentity) -> int:
    """Encodes an identity as an integer."""
    return fingerprint_bits(identity.cluster_id) << 31 | fingerprint_bits(identity.topic_id)


def _identity(version: int) -> TopicIdentity:
    return TopicIdentity(*map(from_fingerprint_bits, divmod(version, 2**31)))


def _stored(stage: Stage, target: Target) -> pa.Schema:
    """Returns the columns of a stage that the table stores."""
    return pa.schema([field for field in stage.schema if field.name != target.delete_marker])
