"""Group cursors that are closed by a signal handler, at each line of the code that it interrupts.

A trace function replaces the handler: it also runs on the interrupted thread, between two lines.
"""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import streamgroups_kafka.cursors
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.positions import TrimHorizon
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.closing import Closed
from streamgroups_kafka.cursors.group_cursors import GroupCursors
from streamgroups_kafka.cursors.instance_session import InstanceSession
from streamgroups_kafka.cursors.instances import InstanceRequest, Instances
from streamgroups_kafka.cursors.iteration import Iteration
from streamgroups_kafka.cursors.position_checks import TopicIds
from unit_tests.streamgroups_kafka.test_cursor_instance import P0, World

#: The modules of cursors, and of the locks and events that they use.
FILES = (str(Path(streamgroups_kafka.cursors.__file__).parent), threading.__file__)


def interrupted(line: int, code: Callable[[], None], handler: Callable[[], None]) -> bool:
    """Runs code, and calls a handler before its nth line in these modules. Returns whether the code is that long."""
    numbers = itertools.count()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FILES):
            return None
        if event == "line" and next(numbers) == line:
            handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        code()
    finally:
        sys.settrace(before)
    return next(numbers) > line


def at_each_line(run: Callable[[int], bool]) -> int:
    """Runs a case with the handler at each line. Returns the number of lines."""
    return next(line for line in itertools.count() if not run(line))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a lock of the interrupted code ends the wait of the handler."""
    wait = InstanceSession.wait_until_left
    monkeypatch.setattr(InstanceSession, "wait_until_left", lambda self, timeout_s=5.0: wait(self, timeout_s))


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """A handler that interrupts the garbage collector does not wait."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("sends_heartbeat", [False, True])
def test_G12_a_handler_that_closes_an_iteration_commits_the_processed_messages(sends_heartbeat: bool) -> None:
    def run(line: int) -> bool:
        world, closed = World(), Closed()
        world.cluster.produce(P0, 10)
        session = world.join("a")
        iteration = Iteration(session, limit=2, idle_timeout_ms=0, clock=world.clock, closed=closed)
        messages, taken, left = iteration.messages(), list[int](), list[bool]()

        def handler() -> None:
            if sends_heartbeat and session.ended is None:
                session.heartbeat()
            closed.set()
            iteration.end()
            left.append(session.has_departed)

        def loop() -> None:
            for message in itertools.islice(messages, 4):
                # A heartbeat stores the lease once a second.
                world.clock.advance(1_000)
                taken.append(message.offset)

        is_long_enough = interrupted(line, loop, handler)
        if is_long_enough:
            assert left == [True]
            assert world.committed() in (len(taken), len(taken) - 1)
            assert list(messages) == []
            assert session.lease.requests == 0
        world.close()
        assert world.group.owners() == {}
        return is_long_enough

    assert at_each_line(run) > 100


def test_a_request_that_a_handler_interrupts_returns_or_is_rejected() -> None:
    def run(line: int) -> bool:
        world, errors = World(), list[FencedMember]()
        world.cluster.produce(P0, 10)
        session = world.join("a")

        def request() -> None:
            try:
                session.commit(session.get(session.identity, 2)[1])
                session.heartbeat()
            except FencedMember as e:
                errors.append(e)

        def handler() -> None:
            session.end("The handler ended it.")
            session.wait_until_left()
            assert session.has_departed

        is_long_enough = interrupted(line, request, handler)
        assert {e.what for e in errors} <= {"The handler ended it."}
        assert session.lease.requests == 0
        world.close()
        return is_long_enough

    assert at_each_line(run) > 30


def test_no_instance_remains_that_is_created_while_a_handler_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(line: int) -> bool:
        world, errors = World(), list[StreamGroupsError]()
        unused: Any = None
        cluster: Any = world.cluster
        config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
        instances = Instances(
            config,
            cluster,
            world.metadata_store,
            unused,
            unused,
            world.clock,
            world.clock,
            unused,
            join_timeout_ms=1_000,
        )
        monkeypatch.setattr(instances, "_admit", lambda _: {})
        monkeypatch.setattr(instances, "_new_session", lambda request, _: world.new_session(request.instance))
        request = InstanceRequest("flights", "billing", "a", TrimHorizon(), True, 30_000)

        def create() -> None:
            try:
                instances.find(instances.create(request))
            except StreamGroupsError as e:
                errors.append(e)

        is_long_enough = interrupted(line, create, instances.close)
        if is_long_enough:
            assert all(session.has_departed for session in world.sessions)
            assert world.group.owners() == {}
            assert {e.what for e in errors} <= {
                "These GroupCursors are closed.",
                "Instance 'a' left: its GroupCursors were closed.",
            }
        instances.close()
        world.close()
        return is_long_enough

    assert at_each_line(run) > 20


def test_another_thread_reads_topic_ids_while_a_handler_waits_for_it() -> None:
    def run(line: int) -> bool:
        world = World()
        ids = TopicIds(world.cluster, world.clock)

        def handler() -> None:
            thread = threading.Thread(target=lambda: ids.of(["flights"], fresh=True), daemon=True)
            thread.start()
            thread.join(5)
            assert not thread.is_alive()

        return interrupted(line, lambda: (ids.of(["flights"]), ids.of(["flights"]))[0] and None, handler)

    assert at_each_line(run) > 5


def test_a_handler_closes_cursors_whose_lock_is_held_or_that_are_being_closed() -> None:
    held = GroupCursors("127.0.0.1:1")
    with held._lock, held._instances._lock:
        held.close()

    def run(line: int) -> bool:
        cursors = GroupCursors("127.0.0.1:1")
        return interrupted(line, cursors.close, cursors.close)

    assert at_each_line(run) > 20


@pytest.fixture
def handled() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handled")
def test_a_signal_ends_the_loop_over_an_iteration() -> None:
    world, closed = World(), Closed()
    world.cluster.produce(P0, 10)
    session = world.join("a")
    iteration = Iteration(session, limit=10, idle_timeout_ms=None, clock=world.clock, closed=closed)

    def handler(*_: object) -> None:
        closed.set()
        iteration.end()

    signal.signal(signal.SIGTERM, handler)
    taken = []
    for message in iteration.messages():
        taken.append(message.offset)
        if len(taken) == 5:
            signal.raise_signal(signal.SIGTERM)
    assert taken == list(range(5))
    assert (world.committed(), world.group.owners()) == (4, {})
