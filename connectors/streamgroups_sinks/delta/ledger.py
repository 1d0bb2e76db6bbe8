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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from streamgroups.errors import LedgerConflict, SinkRejected, SinkUnreachable, StageLost
from streamgroups.identity import UNKNOWN, TopicIdentity, fingerprint_bits, from_fingerprint_bits
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups_sinks.delta.identifiers import Identifiers
from streamgroups_sinks.delta.merging import merge
from streamgroups_sinks.delta.partition_values import removals
from streamgroups_sinks.delta.stages import Stage, Staged
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.store_errors import readable, translated
from streamgroups_sinks.delta.tables import EXACTLY, Mode, Overtaken, Target, table_id, until_no_conflict


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
        identifiers: those that a transaction has read; ``None`` to read the log for each call.
    """

    def __init__(
        self,
        target: Target,
        group_id: str,
        *,
        retry_timeout_s: float = 60.0,
        identifiers: Identifiers | None = None,
    ) -> None:
        self._target, self._group_id, self._retry_timeout_s = target, group_id, retry_timeout_s
        self._identifiers = identifiers

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Ledger.positions`."""
        return self.positions_in(self._target.open(), partitions)

    def positions_in(self, table: DeltaTable, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The positions in a version of the table. Raises the errors of :meth:`positions`."""
        return self._versions_in(table, application_id, partitions)

    def identities_in(
        self, table: DeltaTable, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TopicIdentity]:
        """The identities of topics in a version of the table. Raises the errors of :meth:`positions`."""
        found = self._versions_in(table, identity_application_id, partitions)
        return {tp: _identity(version) for tp, version in found.items() if version}

    def _versions_in(
        self,
        table: DeltaTable,
        id_of: Callable[[str, TopicPartition], str],
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        app_ids = {tp: id_of(self._group_id, tp) for tp in partitions}
        with self._target.translating("reading"):
            identifiers = self._identifiers or Identifiers(self._target.store())
            found = identifiers.versions_in(table, app_ids.values())
        return {tp: found[app_id] for tp, app_id in app_ids.items() if app_id in found}

    @contextmanager
    def transaction(self) -> Iterator[_Transaction]:
        """See :meth:`streamgroups.ports.Ledger.transaction`."""
        shared = _Commit(self._target, self._group_id)
        yield _Transaction(shared, self._group_id)
        conflict = LedgerConflict(
            f"Other writers commit to table {self._target.uri} faster than group '{self._group_id}'; nothing was written.",
            remedy="Try again. If the error persists, let the other writers write fewer and larger batches.",
        )
        until_no_conflict(shared.commit, self._retry_timeout_s, conflict)


class _Transaction:
    """The part of one group in a commit. See :class:`streamgroups.ports.LedgerTransaction`."""

    def __init__(self, shared: _Commit, group_id: str) -> None:
        self._shared, self._group_id = shared, group_id
        self._ledger = shared.ledger_of(group_id)

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._ledger.positions_in(self._shared.snapshot, partitions)
        self._shared.expected |= {(self._group_id, tp): found.get(tp) for tp in partitions}
        return found

    def write(self, output: Sequence[Staged]) -> None:
        self._shared.staged += output

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        found = self._ledger.identities_in(self._shared.snapshot, partitions)
        self._shared.known |= {(self._group_id, tp): found.get(tp, UNKNOWN) for tp in partitions}
        return found

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        shared, group_id = self._shared, self._group_id
        self.positions([tp for tp in next_offsets if (group_id, tp) not in shared.expected])
        shared.next_offsets |= {(group_id, tp): n for tp, n in next_offsets.items()}
        new = {tp: identities.get(tp, UNKNOWN) for tp in next_offsets}
        # A position that is set without ids must not keep an old identity.
        self.identities([tp for tp, it in new.items() if it == UNKNOWN and (group_id, tp) not in shared.known])
        shared.identities |= {(group_id, tp): it for tp, it in new.items()}

    def of(self, group_id: str) -> _Transaction:
        return _Transaction(self._shared, group_id)


class _Commit:
    """The commit of a transaction, with the output and the positions of all its groups.

    Args:
        target: an existing table.
        group_id: the group that begins the transaction.
    """

    def __init__(self, target: Target, group_id: str) -> None:
        self.target, self._group_id = target, group_id
        self.snapshot = target.open()
        self._table: DeltaTable | None = self.snapshot
        with target.translating("reading"):
            self._store = target.store()
        self._read_identifiers = Identifiers(self._store)
        self.expected: dict[tuple[str, TopicPartition], int | None] = {}
        self.staged: list[Staged] = []
        self.next_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.known: dict[tuple[str, TopicPartition], TopicIdentity] = {}
        self.identities: dict[tuple[str, TopicPartition], TopicIdentity] = {}

    def ledger_of(self, group_id: str) -> DeltaLedger:
        """Returns the positions of one of its groups. All groups share what is read from the log."""
        return DeltaLedger(self.target, group_id, identifiers=self._read_identifiers)

    def commit(self) -> None:
        """Commits on top of the version that was read.

        After a concurrent commit it is called again with a newer version.

        Raises:
            Overtaken: if a newer version exists. The positions indicate whether this commit created it.
            StreamGroupsError: see :meth:`streamgroups.ports.Ledger.transaction`.
        """
        table, self._table = self._table or self._open_again(), None
        if not self.next_offsets:
            # Without a position, a restart could not detect whether the output was written.
            if self.staged:
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
        table = self.target.open()
        groups = {group_id for group_id, _ in self.expected}
        found = {
            (group_id, tp): n
            for group_id in groups
            for tp, n in self.ledger_of(group_id)
            .positions_in(table, [tp for g, tp in self.expected if g == group_id])
            .items()
        }
        if changed := sorted(key for key, n in self.expected.items() if found.get(key) != n):
            raise LedgerConflict(
                f"The positions of group {', '.join(sorted({group_id for group_id, _ in changed}))} in table {self.target.uri} have changed meanwhile: "
                f"{listed(tp for _, tp in changed)}.",
                remedy="Try again: the sink compares the positions again.",
            )
        return table

    def _check(self, table: DeltaTable) -> None:
        """Repeats the checks of the stages, because another writer may have changed the table since."""
        stages = {staged.stage.token: staged.stage for staged in self.staged}
        for stage in stages.values():
            if table_id(table) != stage.table_id:
                raise SinkRejected(
                    f"Table {self.target.uri} was recreated after the batch began.", remedy="Restart the query."
                )
            fit = self.target.fits(table, _stored(stage, self.target))
            if fit.new or not fit.required <= stage.required:
                raise SinkRejected(
                    f"The columns of table {self.target.uri} have changed since the batch began.",
                    remedy="Restart the query: its next batch uses the new columns.",
                )

    def _write(self, table: DeltaTable) -> None:
        target = self.target
        store = self._store
        files = [file for staged in self.staged for file in staged.files]
        self._check_files(store)
        properties = CommitProperties(max_commit_retries=EXACTLY, app_transactions=self._identifiers())
        actions: list[AddAction | RemoveAction] = []
        if target.mode is Mode.UPSERT:
            version = table.version()
            if files:
                merge(table, store, self.staged, properties, key=target.key, delete_marker=target.delete_marker)
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
            for staged in self.staged
            for file in staged.files
        ]

    def _check_files(self, store: Store) -> None:
        """Checks that all staged files exist before the log refers to them.

        Only :meth:`DeltaSink.discard` and VACUUM remove them.
        """
        there: dict[str, int] = {}
        for directory in {staged.stage.directory for staged in self.staged if staged.files}:
            there |= store.sizes(directory)
        for staged in self.staged:
            for file in staged.files:
                if there.get(file.path) != file.size_bytes:
                    raise StageLost(
                        f"The staged file {file.path} of table {self.target.uri} is missing or has another size.",
                        remedy=(
                            "Run VACUUM with a retention longer than the duration of a batch; then restart the query."
                        ),
                    )

    def _identifiers(self) -> list[Transaction]:
        now_ms = time.time_ns() // 1_000_000
        positions = [Transaction(application_id(g, tp), n, now_ms) for (g, tp), n in self.next_offsets.items()]
        # The log keeps unchanged identities.
        changed = {
            key: _version(it)
            for key, it in self.identities.items()
            if key not in self.known or _version(it) != _version(self.known[key])
        }
        return positions + [Transaction(identity_application_id(g, tp), n, now_ms) for (g, tp), n in changed.items()]

    def _judge(self, error: Exception, version: int) -> None:
        """Translates a failed commit.

        A newer version is a concurrent commit or this one, which the positions distinguish.
        """
        try:
            newest = self.target.open().version()
        except Exception:
            cause = readable(error, self.target.secrets())
            raise SinkUnreachable(
                f"A batch of group '{self._group_id}' may or may not be committed to table {self.target.uri}: {cause}",
                remedy="Try again: the table's ledger contains the positions of all written batches.",
            ) from None
        if newest > version:
            raise Overtaken from None
        raise translated(
            error, "committing to", uri=self.target.uri, secrets=self.target.secrets(), committing=True
        ) from None


def _version(identity: TopicIdentity) -> int:
    """Encodes an identity as an integer."""
    return fingerprint_bits(identity.cluster_id) << 31 | fingerprint_bits(identity.topic_id)


def _identity(version: int) -> TopicIdentity:
    return TopicIdentity(*map(from_fingerprint_bits, divmod(version, 2**31)))


def _stored(stage: Stage, target: Target) -> pa.Schema:
    """Returns the columns of a stage that the table stores."""
    return pa.schema([field for field in stage.schema if field.name != target.delete_marker])
