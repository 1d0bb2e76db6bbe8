"""A model of queries that are frozen between any two steps, while their group is reset by members and tools.

Used by ``test_fence_search``. A frozen process runs in a thread of its own, which waits at a point of the model: before and after each
transaction of the ledger, and after each response of a broker. It continues later as a zombie, with everything it had read before.
Only one thread runs at a time, so each example is deterministic. Source: SEMANTICS F1-F3, F5.

An independent account of the ledger and of the group decides what is right: each change of a position is a batch that begins there, or
a reset that was not applied before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition, rule

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.reset_protocol import metadata_groups_of
from streamgroups.fakes import FakeLedger, FakeMember, Moment
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, mark_of
from streamgroups.ledgers.fences import epoch_partition, fence_partitions, stored_resets
from streamgroups.partitions import TopicPartition
from streamgroups.ports import FirstPositions, Member
from streamgroups.query.query_ports import CheckPositions
from unit_tests.exactly_once_model import (
    PARTITIONS,
    PICK,
    SHARED,
    Method,
    Output,
    Process,
    QueriesOfOneGroup,
    Query,
    World,
)
from unit_tests.streamgroups.query.spark_model import Run, Settings

_TIMEOUT_S = 20.0


class Frozen(Exception):
    """The example has ended, and the thread of a frozen process must end too."""


class Actor:
    """A call in a thread of its own, which can wait at a point.

    Args:
        name: the process. Only its own steps count.
        call: the call.
        points: at which point it waits.
    """

    def __init__(self, name: str, call: Callable[[], None], points: int) -> None:
        self.name, self._call, self._points = name, call, points
        self._turn, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self.is_frozen, self._is_over = False, False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Runs until the call has ended or waits."""
        self._thread.start()
        self._wait()

    def point(self) -> None:
        """Waits here if it is the point of this actor. Called in its thread."""
        self._points -= 1
        if self._points == 0:
            self.is_frozen = True
            self._stopped.release()
            self._turn.acquire()
            self.is_frozen = False
            if self._is_over:
                raise Frozen

    def wake(self) -> None:
        """Continues until the call has ended."""
        self._turn.release()
        self._wait()

    def discard(self) -> None:
        """Ends the thread."""
        self._is_over = True
        self._turn.release()
        self._thread.join(_TIMEOUT_S)

    def is_current(self) -> bool:
        """Whether the caller runs in the thread of this actor."""
        return threading.current_thread() is self._thread

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=_TIMEOUT_S), f"{self.name} neither ends nor waits"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except Frozen:
            pass
        except BaseException as e:  # the thread of the test raises it
            self._error = e
        finally:
            self._stopped.release()


class Freezer:
    """Contains the process that runs, and the actor whose turn it is."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self._running: list[str] = []

    def point(self) -> None:
        """A point at which the running process can be frozen."""
        for actor in self.actors:
            if actor.is_current() and self._running and self._running[-1] == actor.name:
                actor.point()

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """The code in the block is that of a process: a broker calls its members in the thread of another one."""
        self._running.append(name)
        try:
            yield
        finally:
            self._running.pop()

    def forget_calls(self) -> int:
        """Forgets the calls of a process that is frozen now. Returns how many they were."""
        n_calls = len(self._running)
        self._running.clear()
        return n_calls

    def repeat_calls(self, name: str, n_calls: int) -> None:
        """Continues with the calls of a frozen process."""
        self._running += [name] * n_calls


class FreezingRun(Run):
    """A run whose member can be frozen."""

    def __init__(self, freezer: Freezer, *args: Any, **kwargs: Any) -> None:
        self._freezer = freezer
        super().__init__(*args, **kwargs)

    def _new_member(
        self, topics: Callable[[], Collection[str]], first_positions: FirstPositions, check_positions: CheckPositions
    ) -> Member:
        member = super()._new_member(topics, first_positions, check_positions)
        assert isinstance(member, FakeMember)
        hand_over = member.hand_over

        def handed_over(partitions: Collection[TopicPartition]) -> None:
            with self._freezer.running(self.name):
                hand_over(partitions)

        member.hand_over = handed_over  # type: ignore[method-assign]
        return member


class FreezingProcess(Process):
    """A process that can be frozen."""

    world: FreezingWorld

    def new_run(self, settings: Settings, ledger: FakeLedger[Output] | None) -> Run:
        how = replace(settings, on_restart=self.world.policy)
        return FreezingRun(self.world.freezer, self.world.kafka, self.name, how, self.query.checkpoint, ledger=ledger)

    def step(self) -> None:
        with self.world.freezer.running(self.name):
            super().step()

    def end(self) -> None:
        if self in self.world.processes:
            self.world.processes.remove(self)
        self.spark.source.stop()


class FreezingWorld(World):
    """The topic, the group, the sink, and the account of its positions."""

    def __init__(self, method: Method) -> None:
        super().__init__(method, SHARED)
        self.freezer, self.policy = Freezer(), OnRestart.GROUP
        self.frozen: list[tuple[FreezingProcess, Actor, int]] = []
        self.sink.at = self._at
        for store, name in (
            (self.kafka.cluster, "committed"),
            (self.kafka.cluster, "describe"),
            (self.kafka.metadata_store, "read"),
        ):
            self._with_point(store, name)
        self._positions: dict[TopicPartition, int] = {}
        self._resets: dict[TopicPartition, AppliedReset] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._n_written = 0
        #: All resets that were applied to each partition, and those that members had to apply.
        self.applied: dict[TopicPartition, list[str]] = {p: [] for p in PARTITIONS}
        self.expected: dict[TopicPartition, str | None] = dict.fromkeys(PARTITIONS)
        #: The number of resets by clients without marks.
        self.n_unmarked = 0
        self.known_ids: set[str] = set()
        self.faults: list[str] = []

    def new_process(self, query: Query, name: str) -> FreezingProcess:
        return FreezingProcess(self, query, name)

    def freeze(self, process: Process, points: int) -> None:
        """Executes a step of a process, and freezes it at a point for longer than each timeout."""
        assert isinstance(process, FreezingProcess)
        actor = Actor(process.name, process.step, points)
        self.freezer.actors.append(actor)
        actor.start()
        if actor.is_frozen:
            if process in self.processes:
                self.processes.remove(process)
            process.spark.checkpoint = deepcopy(process.spark.checkpoint)
            n_calls = self.freezer.forget_calls()
            self.frozen.append((process, actor, n_calls))
            self.fence(process)
            if n_calls > 1:
                # The thread that communicates with the group is the one that is frozen.
                self.kafka.group.sleep(process.spark.member)
        else:
            self.freezer.actors.remove(actor)

    def wake(self, index: int) -> None:
        """Continues a frozen process, which is a zombie now."""
        process, actor, n_calls = self.frozen.pop(index)
        # The last process of a query is its current one, and has its checkpoint.
        self.processes.insert(0, process)
        self.freezer.repeat_calls(process.name, n_calls)
        actor.wake()
        self.freezer.forget_calls()
        self.freezer.actors.remove(actor)
        if n_calls > 1:
            self.kafka.group.wake(process.spark.member)

    def discard(self) -> None:
        """Ends all threads."""
        for _, actor, _ in self.frozen:
            actor.discard()
        self.frozen.clear()

    def _with_point(self, of: Any, name: str) -> None:
        request = getattr(of, name)

        def answered(*args: Any, **kwargs: Any) -> Any:
            answer = request(*args, **kwargs)
            self.freezer.point()
            return answer

        setattr(of, name, answered)

    # ---- the account of the group ------------------------------------------------------------------------------------

    def account_for_commits(self) -> None:
        """Checks each committed offset of the group. Without a ledger, only the broker and the marks fence it."""
        commit = self.kafka.cluster.commit

        def committed(group_id: str, next_offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
            if group_id == "airline":
                for tp, next_offset in next_offsets.items():
                    self._account_for_commit(tp, next_offset, mark_of(metadata))
            commit(group_id, next_offsets, metadata)

        self.kafka.cluster.commit = committed  # type: ignore[method-assign]

    def forget_group(self) -> None:
        """The committed offsets have expired, and reset requests with them."""
        self.expected = dict.fromkeys(PARTITIONS)
        if not self.method.has_ledger:
            self._positions.clear()
            self._resets.clear()

    def _account_for_commit(self, p: TopicPartition, after: int, mark: CommitMark | ToolMark | None) -> None:
        before, was = self._positions.get(p), self._resets.get(p, AppliedReset())
        now = AppliedReset() if mark is None else mark.reset
        if mark is not None and now != was:
            if isinstance(mark, CommitMark) or after != before:
                self._account_for_reset(p, was, now)
        elif mark is not None and before is not None and after < before:
            self.faults.append(f"{p}: a member sets the group back from {before} to {after}")
        self._positions[p], self._resets[p] = after, now

    # ---- the account of the ledger -----------------------------------------------------------------------------------

    def _at(self, moment: Moment) -> None:
        if moment is Moment.COMMITTED and self.method.has_ledger:
            self._check()
        self.freezer.point()

    def _check(self) -> None:
        found = self.sink.positions_of("airline", [*PARTITIONS, *fence_partitions(PARTITIONS)])
        resets = stored_resets(PARTITIONS, found)
        new, self._n_written = self.sink.written[self._n_written :], len(self.sink.written)
        for p in PARTITIONS:
            rows = [offset for output in new for tp, offset in output.rows if tp == p]
            before, after = self._positions.get(p), found.get(p)
            epoch = found.get(epoch_partition(p), 0)
            was, now = self._resets.get(p, AppliedReset()), resets[p]
            if epoch < self._epochs.get(p, 0):
                self.faults.append(f"{p}: the epoch goes back from {self._epochs[p]} to {epoch}")
            if now != was:
                self._account_for_reset(p, was, now)
            elif before is not None and after is not None and after != before:
                self._account_for_batch(p, before, after, rows)
            elif rows:
                self.faults.append(f"{p}: rows {rows} without a change of the position {before}")
            if after is not None:
                self._positions[p] = after
            self._resets[p], self._epochs[p] = now, epoch

    def _account_for_reset(self, p: TopicPartition, was: AppliedReset, now: AppliedReset) -> None:
        if now.number < was.number or now.id in self.applied[p]:
            self.faults.append(f"{p}: reset {now} is applied after {was}, and {self.applied[p]} before")
        self.applied[p].append(now.id)

    def _account_for_batch(self, p: TopicPartition, before: int, after: int, rows: list[int]) -> None:
        expected = [offset for offset in self.records[p] if before <= offset < after]
        if after < before or rows != expected:
            self.faults.append(f"{p}: the position moves from {before} to {after} with the rows {rows}")


class FrozenQueries(QueriesOfOneGroup):
    """Queries with a ledger, whose processes are frozen and whose group is reset."""

    world: FreezingWorld
    method: type[Method]

    policies: tuple[OnRestart, ...] = tuple(OnRestart)

    def __init__(self) -> None:
        super().__init__()
        self.world = FreezingWorld(self.method())
        if not self.method.has_ledger:
            self.world.account_for_commits()

    @rule(pick=PICK)
    def restart_with(self, pick: int) -> None:
        self.world.policy = self.policies[pick % len(self.policies)]

    @precondition(lambda self: self.world.processes and len(self.world.frozen) < 3)
    @rule(pick=PICK, points=st.integers(1, 12))
    def freeze(self, pick: int, points: int) -> None:
        self.world.freeze(self.picked(pick), points)

    @precondition(lambda self: self.world.frozen)
    @rule(pick=PICK)
    def wake(self, pick: int) -> None:
        self.world.wake(pick % len(self.world.frozen))

    @precondition(lambda self: self.world.kafka.group.owners())
    @rule(to=st.tuples(st.integers(0, 8), st.integers(0, 8)))
    def reset_live(self, to: tuple[int, int]) -> None:
        ends = self.world.ends
        where = {p: min(n, ends[p]) for p, n in zip(PARTITIONS, to, strict=True)}
        id_ = self.world.kafka.resets.write("airline", where)
        self.world.expected = dict.fromkeys(PARTITIONS, id_)

    @precondition(lambda self: self.world.kafka.group.describe().state == "Empty" and self.world.committed)
    @rule(to=st.tuples(st.integers(0, 8), st.integers(0, 8)), marked=st.booleans())
    def reset_by_a_tool(self, to: tuple[int, int], *, marked: bool) -> None:
        ends = self.world.ends
        where = {p: min(n, ends[p]) for p, n in zip(PARTITIONS, to, strict=True)}
        if marked:
            self.world.kafka.resets.commit("airline", where)
        else:
            self.world.kafka.resets.cancel("airline", where)
            self.world.kafka.cluster.commit("airline", where)
            self.world.n_unmarked += 1
        self.world.expected = dict.fromkeys(PARTITIONS)

    @precondition(lambda self: self.world.kafka.group.describe().state == "Empty" and self.world.committed)
    @rule()
    def forget_offsets(self) -> None:
        """The offsets expire. The entries of the metadata groups are older, and have expired before."""
        for group_id in (*metadata_groups_of("airline"), "airline"):
            self.world.kafka.cluster.forget(group_id)
        self.world.forget_group()

    # ---- invariants --------------------------------------------------------------------------------------------------

    def nothing_is_lost_repeated_or_out_of_order(self) -> None:
        assert not self.world.faults, self.world.faults

    def what_the_group_has_committed_is_written(self) -> None:
        """Resets set the group back: the account of the ledger decides."""

    def teardown(self) -> None:
        """Frozen processes continue, all processes read to the end, and the last live reset is applied."""
        try:
            while self.world.frozen:
                self.world.wake(0)
            self.world.policy = OnRestart.GROUP
            self._read_to_the_end()
            self.nothing_is_lost_repeated_or_out_of_order()
            for p, id_ in self.world.expected.items():
                assert id_ is None or id_ in self.world.applied[p], f"{p}: the reset {id_} was never applied"
            assert self._at_the_end(), "lost: the end was never reached"
        finally:
            self.world.discard()

    def _read_to_the_end(self) -> None:
        for _ in range(500):
            self.world.step_all()
            if self._at_the_end() and all(
                it is None or it in self.world.applied[p] for p, it in self.world.expected.items()
            ):
                break

    def _at_the_end(self) -> bool:
        return all(self.world.committed.get(p, 0) == end for p, end in self.world.ends.items())
