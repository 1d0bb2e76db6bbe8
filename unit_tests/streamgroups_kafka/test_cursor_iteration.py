"""G4, G6, G12: the iteration over the messages of an instance, on a group in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamgroups.cursors.cursor_tokens import LIFETIME_MS
from streamgroups.errors import FencedMember
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore
from streamgroups.retry import comes_true
from streamgroups_kafka.cursors.closing import ClosableMetadataStore, Closed
from streamgroups_kafka.cursors.instance_session import InstanceSession
from streamgroups_kafka.cursors.iteration import Iteration
from unit_tests.streamgroups_kafka.test_cursor_instance import GROUP, P0, TIMEOUT_MS, World

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class Run:
    """One iteration of an instance."""

    def __init__(self, world: World, *, limit: int = 10_000) -> None:
        self.closed = Closed()
        self.session = world.join("a")
        self.iteration = Iteration(
            self.session,
            limit=limit,
            idle_timeout_ms=0,
            clock=world.clock,
            closed=self.closed,
        )
        self.messages = self.iteration.messages()

    def take(self, count: int) -> list[Message]:
        return [next(self.messages) for _ in range(count)]


def test_G12_an_iteration_commits_all_processed_messages_and_leaves(world: World) -> None:
    world.cluster.produce(P0, 25)
    world.cluster.leave_gap(P0, 1)
    run = Run(world, limit=10)
    assert [m.offset for m in run.messages] == list(range(25))
    assert (world.committed(), world.group.owners()) == (26, {})


def test_G12_the_end_of_an_iteration_commits_a_fetch_that_takes_longer_than_a_cursor_is_valid(world: World) -> None:
    world.cluster.produce(P0, 100)
    run = Run(world)
    for _ in range(60):
        next(run.messages)
        world.clock.advance(TIMEOUT_MS // 2)
    assert 60 * TIMEOUT_MS // 2 > LIFETIME_MS
    run.messages.close()  # type: ignore[attr-defined]
    assert (world.committed(), world.group.owners()) == (59, {})


def test_G12_an_iteration_that_another_thread_closes_commits_the_processed_messages(world: World) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world)
    run.take(10)
    run.closed.set()
    closer = threading.Thread(target=run.iteration.end)
    closer.start()
    closer.join(10)
    assert (world.committed(), world.group.owners()) == (9, {})
    assert list(run.messages) == []


def test_G12_a_close_during_a_request_returns_no_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world)
    get = run.session.get

    def closed_meanwhile(*arguments: Any) -> Any:
        found = get(*arguments)
        run.closed.set()
        run.iteration.end()
        return found

    monkeypatch.setattr(run.session, "get", closed_meanwhile)
    assert list(run.messages) == []
    assert (world.committed(), world.group.owners()) == (0, {})


class Program:
    """An object of a user in a reference cycle. Only the garbage collector deletes it, and its iterator."""

    def __init__(self, run: Run) -> None:
        self.messages, self.itself = run.messages, self
        del run.messages


def on_the_thread_of_the_instance(session: InstanceSession) -> None:
    session._owner.start(gc.collect).result(10)


def in_a_job_between_requests(session: InstanceSession) -> None:
    session._participant.introduce = lambda _: gc.collect()  # type: ignore[assignment, method-assign]
    job = session.poll_reset_requests()
    assert job is not None
    job.wait(10)


def on_a_thread_with_the_lock_of_the_lease(session: InstanceSession) -> None:
    with session._lock:
        gc.collect()


def on_a_thread_with_the_lock_of_the_member(session: InstanceSession) -> None:
    with session._member._changed:
        gc.collect()


@pytest.mark.parametrize(
    "collect",
    [
        on_the_thread_of_the_instance,
        in_a_job_between_requests,
        on_a_thread_with_the_lock_of_the_lease,
        on_a_thread_with_the_lock_of_the_member,
    ],
)
def test_G6_G12_the_garbage_collector_ends_an_abandoned_iteration_on_any_thread(
    world: World, collect: Callable[[InstanceSession], None]
) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world, limit=10)
    run.take(5)
    gc.disable()
    try:
        Program(run)
        thread = threading.Thread(target=collect, args=[run.session], daemon=True)
        thread.start()
        thread.join(10)
    finally:
        gc.enable()
    assert not thread.is_alive()
    assert comes_true(lambda: run.session.has_departed, 10, every_s=0.01)
    assert (world.committed(), world.group.owners()) == (4, {})


def test_G12_an_iterator_without_references_commits_before_the_program_continues(world: World) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world)
    run.take(5)
    del run.messages
    assert (world.committed(), world.group.owners()) == (4, {})


def test_an_iterator_that_is_deleted_before_its_first_message_leaves(world: World) -> None:
    run = Run(world)
    del run.messages
    assert run.session.has_departed


def test_G6_an_iteration_whose_lease_has_expired_commits_nothing(world: World) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world)
    run.take(5)
    world.clock.advance(TIMEOUT_MS + 1)
    run.messages.close()  # type: ignore[attr-defined]
    assert (world.committed(), world.group.owners()) == (0, {})
    assert "it sent no request" in str(run.session.ended)


class StoreAtExit:
    """A metadata store whose thread has ended."""

    def __init__(self, store: MetadataStore) -> None:
        self.store, self.has_ended = store, False

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        self._check()
        return self.store.read(group_id, partitions)

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        self._check()
        self.store.write(group_id, entries)

    def close(self) -> None:
        self.has_ended = True

    def _check(self) -> None:
        if self.has_ended:
            raise RuntimeError("The thread accepts no more jobs.")


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("is_reset", [False, True])
def test_G12_the_exit_of_the_interpreter_commits_and_the_next_owner_applies_a_reset(
    world: World, is_reset: bool, is_closed: bool
) -> None:
    """A thread can end its iteration after the end of the metadata store."""
    closed = Closed()
    store: Any = world.metadata_store
    at_exit = StoreAtExit(store)
    unclosed: Any = ClosableMetadataStore(at_exit, closed)
    world.metadata_store = unclosed
    world.cluster.produce(P0, 25)
    run = Run(world, limit=10)
    run.take(5)
    if is_reset:
        world.request_reset({P0: 20})
    at_exit.close()
    if is_closed:
        closed.set()
        run.closed.set()
    run.iteration.end()
    assert (world.committed(), world.group.owners()) == (4, {})
    world.metadata_store = store
    following = world.join("b")
    messages, _ = following.get(following.identity, 10)
    assert messages[0].offset == (20 if is_reset else 4)


def test_G12_a_program_that_ends_in_its_loop_has_committed_the_processed_messages() -> None:
    """The functions of ``atexit`` run when executors have ended, so the threads of the cursors are no executors."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "committed 7 owners {}\n", ended.stderr


_PROGRAM = """
import atexit
import sys

sys.path[:0] = [".", "connectors"]
from streamgroups_kafka.client.job_thread import JobThread
from streamgroups_kafka.cursors.closing import ClosableMetadataStore, Closed
from streamgroups_kafka.cursors.iteration import Iteration
from unit_tests.streamgroups_kafka.test_cursor_instance import P0, World


class ThreadedStore:
    def __init__(self, store):
        self.owner, self.store = JobThread("store"), store

    def read(self, *request):
        return self.owner.start(lambda: self.store.read(*request)).result()

    def write(self, *request):
        self.owner.start(lambda: self.store.write(*request)).result()


world, closed = World(), Closed()
world.metadata_store = ClosableMetadataStore(ThreadedStore(world.metadata_store), closed)
world.cluster.produce(P0, 25)
iteration = Iteration(world.join("a"), limit=10, idle_timeout_ms=None, clock=world.clock, closed=closed)


def close():
    closed.set()
    iteration.end()
    print("committed", world.committed(), "owners", world.group.owners())


atexit.register(close)
messages = iteration.messages()
for _ in range(8):
    next(messages)
"""


def test_an_iteration_leaves_although_its_last_commit_fails(world: World) -> None:
    world.cluster.produce(P0, 25)
    run = Run(world)
    run.take(10)
    world.cluster.reachable = False
    run.messages.close()  # type: ignore[attr-defined]
    assert isinstance(run.session.ended, FencedMember)
    assert run.session.has_departed
    world.cluster.reachable = True


@pytest.mark.parametrize("first_ms", [0, 9_900, TIMEOUT_MS])
def test_G6_each_message_can_take_the_lease_timeout(world: World, first_ms: int) -> None:
    world.cluster.produce(P0, 3)
    run = Run(world)
    next(run.messages)
    world.clock.advance(first_ms)
    next(run.messages)
    world.clock.advance(TIMEOUT_MS)
    assert next(run.messages).offset == 2
    world.clock.advance(TIMEOUT_MS + 1)
    with pytest.raises(FencedMember, match="'a' left group 'billing'"):
        next(run.messages)


def test_G9_an_iteration_stores_its_lease_once_a_second(world: World) -> None:
    world.cluster.produce(P0, 100)
    run = Run(world)
    stored: list[int] = []
    for _ in range(30):
        next(run.messages)
        world.clock.advance(100)
        # The entry is written in the background, before the response to a later request of the thread.
        run.session._owner.start(lambda: None).result(10)
        until_ms = world.resets.entries(GROUP, [P0])[P0].until_ms
        assert until_ms is not None
        assert world.clock() + TIMEOUT_MS - until_ms <= 1_200
        stored.append(until_ms)
    assert len(set(stored)) <= 4
