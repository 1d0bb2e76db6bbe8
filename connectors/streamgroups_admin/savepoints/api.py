"""``sg.savepoints.Savepoints``: the commands ``streamgroups savepoint`` as methods, for programs and notebooks.

Called by users. It uses the functions of the commands. Source: SEMANTICS C1, C3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.reset_plan import Move
from streamgroups.option_values import folded, without_prefix
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.savepoints.restoring import Operators
from streamgroups_admin.cluster import Cluster, connected
from streamgroups_admin.savepoints.restoring import (
    Restore,
    carry_out_restore,
    effects,
    plan_restore,
    target_of,
)
from streamgroups_admin.savepoints.store import (
    ListedSavepoint,
    SavepointProblem,
    create_savepoint,
    listed_savepoints,
    require_exists,
    verify_savepoint,
)
from streamgroups_operators.savepoints.directory import SavepointDirectory

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore of a savepoint, or its plan.

    Args:
        group_id: the group that continues.
        moves: the old and the new offset of each partition.
        effects: the other effects, as sentences.
        is_applied: whether the restore was applied. Otherwise it is a plan.
    """

    group_id: str
    moves: tuple[Move, ...]
    effects: tuple[str, ...]
    is_applied: bool


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The savepoints at a location. A savepoint is a copy of the committed offsets of a group with their states.

    Args:
        location: a path, or a URI of a file system that Arrow reads, such as ``s3://bucket/savepoints``.
        bootstrap_servers: the brokers, as ``host:port`` separated by commas. Only :meth:`create` and :meth:`restore` need them.
        settings: further Kafka settings with their Java or librdkafka names, such as ``security.protocol``. Their secrets are
            never shown.

    Example::

        sink = sg.DeltaSink(uri="/data/board", mode="upsert", key=("window_start", "airport"))
        savepoints = sg.savepoints.Savepoints("/data/savepoints", bootstrap_servers="localhost:9092")
        made = savepoints.create("board", state_location="/data/checkpoints/streamgroups-state", sink=sink)
        savepoints.restore(made.id, state_location="/data/checkpoints/streamgroups-state", group="board-next")

    >>> Savepoints("/data/savepoints", bootstrap_servers="localhost:9092", settings={"sasl.password": "hunter2"})
    Savepoints(location='/data/savepoints', bootstrap_servers='localhost:9092')
    """

    location: str
    bootstrap_servers: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def create(
        self,
        group: str,
        *,
        state_location: str | None = None,
        sink: Any = None,
        checkpoint: str | None = None,
        require_stopped: bool = False,
    ) -> CommitRecord:
        """Creates a savepoint of a group. Its queries can run meanwhile.

        Args:
            group: the group.
            state_location: the option ``stateLocation`` of its queries, or their default: ``streamgroups-state`` in the
                directory of the checkpoint. ``None`` for queries without state of this library.
            sink: the sink of its queries, which has a ledger: ``sg.PostgresSink``, ``sg.DeltaSink``, or the table of
                ``sg.ledgers.ledger``. The commit record then has the positions of the ledger, and the version of a Delta
                table. No output is copied.
            checkpoint: the ``checkpointLocation`` of an exclusive query whose state is in Spark's operators. The savepoint
                then has a copy of the batch that the group has committed.
            require_stopped: whether a group with members is rejected, for an upgrade.

        Returns:
            The commit record, with the id of the savepoint.

        Raises:
            UnknownGroup: if the group has no committed offsets, or the location has none of its states.
            GroupRejected: if it has members and ``require_stopped`` is set, or its states need ``state_location``.
            InvalidOption: if the sink has no ledger, or its ledger has no position of the group.
            CheckpointRejected: if no committed batch of the checkpoint ends at the committed offsets.
            StateMissing: if a state does not exist.
            BrokerUnreachable: if no broker responds within 10 seconds.

        >>> Savepoints("/data/savepoints").create("board")
        Traceback (most recent call last):
        streamgroups.errors.InvalidOption: Savepoints has no bootstrap_servers. Pass bootstrap_servers="host:port".
        """
        with self._cluster() as cluster:
            return create_savepoint(
                cluster,
                group,
                self.location,
                state_location,
                require_stopped=require_stopped,
                sink=sink,
                checkpoint=checkpoint,
            )

    def list(self) -> tuple[ListedSavepoint, ...]:
        """Lists the savepoints, oldest first, with those that are not complete.

        Raises:
            StateUnreachable: if the storage does not answer.

        >>> Savepoints("/nonexistent/savepoints").list()
        ()
        """
        return tuple(listed_savepoints(self.location))

    def get(self, savepoint: str) -> CommitRecord:
        """Returns the commit record of a savepoint: its group, its offsets, and its operators.

        Args:
            savepoint: its id.

        Raises:
            InvalidOption: if it is not an id.
            UnknownSavepoint: if it does not exist, or is not complete.
            SavepointDamaged: if the record was changed.

        >>> Savepoints("/nonexistent/savepoints").get("20241123T040000Z-5f2c9a01")
        Traceback (most recent call last):
        streamgroups.errors.UnknownSavepoint: The savepoint '/nonexistent/savepoints/20241123T040000Z-5f2c9a01' does not exist. \
List the savepoints with: streamgroups savepoint list LOCATION.
        """
        return SavepointDirectory(self.location, savepoint).read()

    def verify(self, savepoint: str) -> tuple[SavepointProblem, ...]:
        """Reads all files of a savepoint. Returns those that are missing or were changed.

        Args:
            savepoint: its id.

        Raises:
            UnknownSavepoint: if it does not exist, or is not complete.
            SavepointDamaged: if its commit record was changed.
        """
        return tuple(verify_savepoint(SavepointDirectory(self.location, savepoint))[1])

    def restore(
        self,
        savepoint: str,
        *,
        state_location: str | None = None,
        group: str | None = None,
        checkpoint: str | None = None,
        state_only: bool = False,
        rename: Mapping[str, str] = MappingProxyType({}),
        without: Collection[str] = (),
        sink: Any = None,
        accept_repeated_output: bool = False,
        accept_other_partitions: bool = False,
        dry_run: bool = False,
        undo_file: str | Path | None = None,
        wait: str = "1m",
    ) -> Restored:
        """Restores a savepoint: sets a group to its offsets and states. Members of this library apply it while they run.

        Args:
            savepoint: its id.
            state_location: the option ``stateLocation`` of the queries that continue.
            group: a new group that continues (fork); ``None`` for the group of the savepoint.
            checkpoint: the new ``checkpointLocation`` of the query that continues, if the savepoint has a checkpoint.
            state_only: whether the committed offsets of the group stay, and only the state is that of the savepoint.
            rename: new names of operators of a changed program, by their old names.
            without: the operators that a changed program does not have.
            sink: the sink of the group. A restore in place then compares its ledger with the savepoint.
            accept_repeated_output: whether output after the savepoint may be written again, beside the old one.
            accept_other_partitions: whether partitions that the savepoint does not have may keep their offsets and states.
            dry_run: whether to return the plan only.
            undo_file: the file for the previous offsets. Default: a new file in the state directory, as the commands write it,
                which needs the extra ``cli``.
            wait: the maximum time for members to finish their batches and apply the restore.

        Returns:
            The offsets, and the other effects.

        Raises:
            UnknownSavepoint: if it does not exist, or is not complete.
            SavepointDamaged: if a file is missing or was changed. No offset was changed.
            GroupRejected: if the savepoint does not fit the group, its topics or its output, or output would be written again, or
                the group has read partitions that the savepoint does not have.
            InvalidOption: if arguments contradict each other, or one is missing.
            PartlyDone: if some offsets were committed and some were not.
            KeyboardInterrupt: at Ctrl-C. Its text names the commands that complete and undo the restore.
            BrokerUnreachable: if no broker responds within 10 seconds.
        """
        wait_s = parse_duration_ms(wait, option="wait") / 1_000
        directory = SavepointDirectory(self.location, savepoint)
        record, operators = directory.read(), Operators(dict(rename), frozenset(without))
        target = target_of(
            record,
            operators,
            group=group,
            state_location=state_location,
            checkpoint=checkpoint,
            is_state_only=state_only,
        )
        restore = Restore(directory, record, target, operators, state_only, checkpoint, sink)
        with self._cluster() as cluster:
            plan = plan_restore(cluster, restore)
            found = Restored(plan.group_id, tuple(plan.moves), tuple(effects(restore, plan)), is_applied=False)
            if dry_run:
                return found
            carry_out_restore(
                cluster,
                restore,
                plan,
                undo_file=None if undo_file is None else Path(undo_file),
                wait_s=wait_s,
                accept_repeated_output=accept_repeated_output,
                accept_other_partitions=accept_other_partitions,
            )
        return replace(found, is_applied=True)

    def delete(self, savepoint: str) -> None:
        """Deletes a savepoint, also one that is not complete. This cannot be undone.

        Args:
            savepoint: its id.

        Raises:
            UnknownSavepoint: if it does not exist.
        """
        directory = SavepointDirectory(self.location, savepoint)
        require_exists(directory)
        directory.delete()

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        from streamgroups_kafka.client.config import ClientConfig

        if self.bootstrap_servers is None:
            raise InvalidOption("Savepoints has no bootstrap_servers.", remedy='Pass bootstrap_servers="host:port".')
        given = folded((name, str(it)) for name, it in without_prefix(self.settings.items()))
        config = ClientConfig.from_options({**given, "bootstrap.servers": self.bootstrap_servers})
        with connected(config, _TIMEOUT_S) as cluster:
            yield cluster
