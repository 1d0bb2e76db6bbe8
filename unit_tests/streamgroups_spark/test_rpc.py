"""Processes of a session find each other, and no other process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pyspark import cloudpickle

from streamgroups.errors import FencedMember, QueryUnknown, StreamGroupsError
from streamgroups_spark.bridge import rpc
from streamgroups_spark.bridge.dataclass_json import to_json
from streamgroups_spark.bridge.rpc import (
    USER,
    Replies,
    SessionServer,
    directory_of,
    request_all,
    request_each,
    request_source,
    request_user,
    task_directory_of,
    why_unknown,
)
from streamgroups_spark.bridge.sockets import call, unnamed
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals.pickle_checks import shipped_class
from streamgroups_spark.messages.batch import FiguresRequest, LedgerRequest
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.session import directory_in, new_session, session_of_process

REQUEST = LedgerRequest("board", None)


@dataclass(frozen=True)
class BatchLogged:
    """A message that no process expects."""

    number: int


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mknod, (self.path,)


def facts(checkpoint: str) -> QueryFacts:
    return QueryFacts(checkpoint, frozenset({"aggregation"}))


@pytest.fixture
def session(temporary: Path) -> str:
    """A session of its own, in a directory of its own."""
    return new_session()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of temporary files with a short name, unlike ``tmp_path``."""
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield Path(directory)


def test_all_responses_are_returned(session: str) -> None:
    def echo(name: str) -> Any:
        return lambda request: facts(name) if name != "c" and request == REQUEST else None

    with (
        closing(SessionServer(session, "a", echo("a"))),
        closing(SessionServer(session, "b", echo("b"))),
        closing(SessionServer(session, "c", echo("c"))),
    ):
        assert {it.checkpoint for it in request_all(session, REQUEST)} == {"a", "b"}
        assert request_all("another", REQUEST) == []
    assert request_all(session, REQUEST) == []


class Processes:
    """The processes of a session, which count the requests that they receive."""

    def __init__(self, session: str, replies: Mapping[str, object]) -> None:
        self.received: list[str] = []
        self._stack = ExitStack()
        for name, reply in replies.items():
            self._stack.enter_context(closing(SessionServer(session, name, partial(self._answer, name, reply))))

    def _answer(self, name: str, reply: object, _request: object) -> object:
        self.received.append(name)
        return reply

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def test_a_request_to_the_users_process_reaches_no_other(session: str) -> None:
    with Processes(session, {USER: True, "0123": False}) as processes:
        assert request_user(session, REQUEST) is True
        assert processes.received == [USER]
    with Processes(session, {USER: None, "0123": False}) as processes:
        assert request_user(session, REQUEST) is None
        assert processes.received == [USER]
    with Processes(session, {"0123": False}):
        assert request_user(session, REQUEST, is_needed=True) is None, "the session is not registered"


def test_a_request_about_a_batch_reaches_only_the_run_that_planned_it(session: str) -> None:
    with Processes(session, {USER: None, "0123": facts("a"), "4567": facts("b"), "89ab": facts("c")}) as processes:
        assert request_source(session, {"n": 3, "run": "4567"}, REQUEST) == facts("b")
        assert processes.received == ["4567"]


@pytest.mark.parametrize("run", ["dead", "4567", "user", "../0123", "..", "", 7, None])
def test_S8_a_batch_of_an_earlier_run_is_found_among_all_processes(session: str, run: object) -> None:
    """Its process was killed, or a killed driver planned it, or it does not run the batch. The offset can be damaged."""
    with Processes(session, {USER: None, "0123": None, "4567": None, "zzzz": facts("c")}) as processes:
        assert request_source(session, {"n": 3, "run": run}, REQUEST) == facts("c")
        assert sorted(processes.received) == ["0123", "4567", USER, "zzzz"]
    assert request_source(session, {"n": 3, "run": run}, REQUEST) is None


def test_S8_a_stopped_process_of_the_earlier_run_does_not_hide_the_next_one(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "_RETRY_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped, Processes(session, {"4567": True}):
        stopped.bind(str(directory_of(session) / "0123"))
        stopped.listen()
        assert request_source(session, {"run": "0123"}, REQUEST) is True
    (directory_of(session) / "0123").unlink()


def test_a_reply_from_memory_does_not_wait_for_one_of_a_broker(session: str) -> None:
    """Nor does one process wait for another: Prometheus limits the time of a scrape."""
    released, requested = threading.Event(), threading.Semaphore(0)

    def answer(request: object) -> object:
        if isinstance(request, LedgerRequest):
            requested.release()
            released.wait(30)
        return True

    with (
        closing(SessionServer(session, "a", answer, concurrent=(FiguresRequest,))),
        closing(SessionServer(session, "b", answer)),
        ThreadPoolExecutor() as threads,
    ):
        waiting = threads.submit(request_all, session, REQUEST)
        assert requested.acquire(timeout=30)
        assert requested.acquire(timeout=30)
        began_s = time.monotonic()
        assert request_all(session, FiguresRequest(), timeout_s=0.2) == [True]
        assert time.monotonic() - began_s < 5
        released.set()
        assert waiting.result(30) == [True, True]


def test_requests_need_no_more_threads(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SessionServer(session, "a", lambda _: True)), closing(SessionServer(session, "b", lambda _: True)):
        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            if thread.name == "streamgroups-request":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail)
        assert request_all(session, REQUEST) == [True, True]


def test_a_rejection_is_raised_at_the_request(session: str) -> None:
    def reject(_: object) -> None:
        raise FencedMember("Gone.", remedy="Restart.")

    with closing(SessionServer(session, "a", reject)):
        for _ in range(2):
            with pytest.raises(FencedMember, match=r"Gone\. Restart\."):
                request_all(session, REQUEST)


def test_a_killed_process_is_removed(session: str, temporary: Path) -> None:
    listen = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from streamgroups_spark.bridge.rpc import SessionServer\n"
        "listening = SessionServer(sys.argv[2], 'a', lambda _: True); print(flush=True); sys.stdin.read()"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", listen, str(temporary), session],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env=paths,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert request_all(session, REQUEST) == [True]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert request_all(session, REQUEST) == []
        assert list(directory_of(session).iterdir()) == []


def test_what_killed_sessions_have_left_is_removed(session: str, temporary: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(directory_of("killed") / "one"))
    with (
        closing(SessionServer("alive", "a", lambda _: True)),
        closing(SessionServer(session, USER, lambda _: True)),
    ):
        sessions = {path.name for path in directory_of(session).parent.iterdir()}
        assert sessions == {"alive", session[:12]}
        assert request_all("alive", REQUEST) == [True]


def test_a_process_that_is_about_to_listen_is_kept(session: str, temporary: Path) -> None:
    """Its socket exists, but it does not listen yet. Another process of this user starts a server or sends a request."""
    starting = unnamed(directory_of("starting") / "one")
    with socket.socket(socket.AF_UNIX) as new:
        new.bind(str(starting))
        with closing(SessionServer(session, "a", lambda _: True)):
            assert starting.exists()
        assert request_all("starting", REQUEST) == []
        assert request_source("starting", {"run": "one"}, REQUEST) is None
        assert starting.exists()
        # A process that was killed here.
        os.utime(starting, (0, 0))
        with closing(SessionServer(session, "a", lambda _: True)):
            assert not starting.parent.exists()


def test_a_directory_that_others_may_enter_is_rejected(session: str) -> None:
    directory_of(session).chmod(0o755)
    with pytest.raises(StreamGroupsError, match="other users can access it"):
        request_all(session, REQUEST)


@pytest.mark.parametrize("of", [directory_of, task_directory_of])
@pytest.mark.parametrize("level", [0, 1], ids=["of the user", "of the session"])
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("file", "is a file, not a directory"),
        ("socket", "is a file, not a directory"),
        ("link", "is a symbolic link, not a directory"),
        ("dangling link", "is a symbolic link, not a directory"),
        ("mode 777", "has mode 0777, so other users can access it"),
        ("mode 1710", "has mode 1710, so other users can access it"),
    ],
)
def test_anything_but_a_directory_of_this_user_is_rejected(
    session: str, temporary: Path, of: Callable[[str], Path], level: int, kind: str, problem: str
) -> None:
    """Another user of the machine can create the path first."""
    used = of(session)
    path = (used.parent, used)[level]
    used.rmdir()
    if path != used:
        path.rmdir()
    if kind == "file":
        path.write_text("")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as unused:
            unused.bind(str(path))
    elif kind.endswith("link"):
        path.symlink_to(temporary if kind == "link" else temporary / "missing")
    else:
        path.mkdir()
        path.chmod(int(kind.removeprefix("mode "), 8))
    with pytest.raises(StreamGroupsError) as raised:
        of(session)
    assert str(raised.value) == f"{path} {problem}. Remove it, or set TMPDIR to another directory."


@pytest.mark.parametrize("of", [directory_of, task_directory_of])
def test_a_directory_that_cannot_be_created_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of: Callable[[str], Path]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(rpc, "_LONGEST", 1_000)
    for missing in (tmp_path / "missing", tmp_path / "file"):
        monkeypatch.setattr("tempfile.tempdir", str(missing))
        with pytest.raises(StreamGroupsError, match=r"cannot be created: .*\. Set TMPDIR to a directory in which"):
            of(new_session())


def test_each_directory_has_the_remedy_of_its_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory for executors does not move the sockets of the driver."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(rpc, "_LONGEST", 1_000)
    with pytest.raises(StreamGroupsError, match=r"create files, in the environment of the driver\.$"):
        directory_of(new_session())
    with pytest.raises(StreamGroupsError, match=r"create files, on each executor \(spark\.executorEnv\.TMPDIR\)\.$"):
        task_directory_of(new_session())


@pytest.mark.parametrize("directory", ["with a space", "with@sign", "long" * 20])
def test_S9_processes_with_another_directory_of_temporary_files_find_the_users_process(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """Spark sets ``spark.executorEnv.TMPDIR`` for the sources and sinks on the driver too, not for the user's process."""
    (temporary / directory).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary / directory))
    session = session_of_process()
    shipped = shipped_class(StreamGroupsDataSource, {"session": session})
    request = (
        "import pickle, sys, tempfile\n"
        "from streamgroups_spark.bridge.rpc import USER, SessionServer, request_source, request_user\n"
        "from streamgroups_spark.messages.batch import LedgerRequest\n"
        "session = pickle.load(sys.stdin.buffer).session\n"
        "listening = SessionServer(session, 'run', lambda _: True)\n"
        "print(tempfile.gettempdir(), request_user(session, LedgerRequest('board', None)), flush=True)\n"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    with (
        closing(SessionServer(session, USER, lambda _: True)),
        subprocess.Popen(
            [sys.executable, "-c", request], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(cloudpickle.dumps(shipped))
        process.stdin.flush()
        assert process.stdout.readline().decode().split() == [str(temporary), "True"]
        # A sink of the same session finds the source too.
        assert request_source(session, {"run": "run"}, REQUEST) is True
        process.stdin.close()


def test_S14_only_a_registered_session_has_a_process_that_must_reply(session: str, temporary: Path) -> None:
    assert why_unknown(session) is None
    registered = session_of_process()
    path = directory_of(registered) / USER
    assert why_unknown(registered) == (
        f"it has ended, or its socket {path} was removed, as by a clean-up of temporary files"
    )
    with closing(SessionServer(registered, USER, lambda _: None)):
        assert why_unknown(registered) == "it does not find the query among its active queries"


def test_a_host_without_a_directory_of_temporary_files_imports_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    assert directory_in(session_of_process()) is None


def test_a_long_directory_of_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The address of a Unix socket is short."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 20)))
    session = new_session()
    with closing(SessionServer(session, USER, lambda _: True)):
        assert request_all(session, REQUEST) == [True]
    directory_of(session).rmdir()


def test_an_idle_connection_stops_no_other(session: str) -> None:
    with closing(SessionServer(session, USER, lambda _: True)):
        (path,) = directory_of(session).iterdir()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
        assert request_all(session, REQUEST) == [True]


def test_every_exception_of_an_answer_reaches_the_requesting_process(session: str) -> None:
    def answer(request: LedgerRequest) -> object:
        if request.group_id == "fails":
            raise KeyError("x")
        return threading.Lock() if request.group_id == "no JSON" else True

    with closing(SessionServer(session, "a", answer)):
        for group_id, why in (("fails", "KeyError: 'x'"), ("no JSON", "TypeError: Object of type lock is not JSON")):
            with pytest.raises(StreamGroupsError, match=why):
                request_all(session, LedgerRequest(group_id, None))
            assert request_all(session, REQUEST) == [True]


def test_a_message_of_another_class_is_rejected(session: str) -> None:
    """A message creates no object of a class that the other process chooses."""
    with closing(SessionServer(session, USER, lambda _: BatchLogged(3))):
        with pytest.raises(StreamGroupsError, match="'BatchLogged' is not an expected message"):
            request_all(session, BatchLogged(3))
        with pytest.raises(StreamGroupsError, match=r"cannot be read .*'BatchLogged' is not an expected message"):
            request_user(session, REQUEST, is_needed=True)


def test_a_pickle_is_no_message_and_is_not_executed(session: str, tmp_path: Path) -> None:
    with closing(SessionServer(session, USER, lambda _: True)):
        (path,) = directory_of(session).iterdir()
        with Client(str(path), "AF_UNIX", authkey=session.encode()) as connection:
            connection.send(Touch(str(tmp_path / "executed")))
            assert b"failed to handle a request" in connection.recv_bytes()
        assert request_all(session, REQUEST) == [True]
    assert not (tmp_path / "executed").exists()


def test_a_process_without_the_key_gets_no_reply(session: str) -> None:
    with closing(SessionServer(session, USER, lambda _: True)):
        (path,) = directory_of(session).iterdir()
        with pytest.raises(ConnectionError):
            call(path, b"another", to_json(REQUEST), 10.0)
        with pytest.raises(StreamGroupsError, match="AuthenticationError"):
            request_user(session[:12] + "another", REQUEST, is_needed=True)
        assert request_all(session, REQUEST) == [True]


def test_no_listener_and_no_answer_are_distinguished(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer a source would run without the ledger of its group."""
    monkeypatch.setattr(rpc, "_RETRY_TIMEOUT_S", 0.05)
    assert request_user(session, REQUEST, is_needed=True) is None
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(directory_of(session) / USER))
        stopped.listen()
        with pytest.raises(QueryUnknown, match=r"does not respond: no response from user within") as raised:
            request_user(session, REQUEST, is_needed=True)
        assert raised.value.retriable
        assert request_user(session, REQUEST) is None
    (directory_of(session) / USER).unlink()


def test_a_server_that_closes_connections_does_not_respond(session: str) -> None:
    with socket.socket(socket.AF_UNIX) as broken:
        broken.bind(str(directory_of(session) / USER))
        broken.listen()

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    broken.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(StreamGroupsError, match="closed the connection"):
            request_user(session, REQUEST, is_needed=True)
        broken.shutdown(socket.SHUT_RDWR)


def test_a_stopped_process_does_not_respond(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_RETRY_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(directory_of(session) / "stopped"))
        stopped.listen()
        assert request_all(session, REQUEST) == []
        with closing(SessionServer(session, "a", lambda _: True)), closing(SessionServer(session, "b", lambda _: None)):
            assert request_each(session, REQUEST) == Replies({"a": True, "b": None}, frozenset({"stopped"}))


def test_another_process_can_remove_a_directory_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "socket").touch()
    listed = Path.iterdir

    def removed(directory: Path) -> Iterator[Path]:
        if directory.name == "gone":
            directory.rmdir()
        return listed(directory)

    monkeypatch.setattr(Path, "iterdir", removed)
    assert rpc.files_of_sessions(tmp_path) == [tmp_path / "kept" / "socket"]
