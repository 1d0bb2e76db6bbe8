"""Requests end in time, whatever the other process does."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Client, Connection, deliver_challenge
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups_spark.bridge import sockets
from streamgroups_spark.bridge.sockets import Server, call, unnamed
from streamgroups_testkit.waits import wait_until

KEY = b"shared key"
#: The time of the wait for a process that hangs.
SHORT_S = 0.05


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket's path. It is short, unlike ``tmp_path``."""
    with TemporaryDirectory() as directory:
        yield Path(directory) / "socket"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    """The socket of a process that accepts nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        yield listening


def echo(request: Any) -> Any:
    return request


@pytest.mark.parametrize("message", [None, 7, "é", {"a": [1, None]}, "x" * 3_000_000])
def test_a_request_and_its_response(path: Path, message: Any) -> None:
    with closing(Server(path, KEY, echo, 10)):
        assert call(path, KEY, message, 10) == message
    assert not path.exists()


def test_an_error_has_its_class_and_its_group(path: Path) -> None:
    def reject(_: Any) -> None:
        raise FencedMember("Gone.", remedy="Restart.", group="board")

    with closing(Server(path, KEY, reject, 10)), pytest.raises(FencedMember, match=r"Gone\. Restart\.") as error:
        call(path, KEY, None, 10)
    assert error.value.group == "board"


def test_a_request_waits_for_no_other(path: Path) -> None:
    """A heartbeat is answered while a long request runs, and while another process sends nothing."""
    released = threading.Event()

    def answer(request: str) -> str:
        if request == "long":
            assert released.wait(10)
        return request

    responses: list[str] = []
    with closing(Server(path, KEY, answer, 10)), socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        long = threading.Thread(target=lambda: responses.append(call(path, KEY, "long", 10)))
        long.start()
        assert call(path, KEY, "heartbeat", 10) == "heartbeat"
        released.set()
        long.join(10)
        assert responses == ["long"]


def test_close_waits_for_the_responses_in_progress(path: Path) -> None:
    begun, released = threading.Event(), threading.Event()
    responses: list[Any] = []

    def answer(request: Any) -> Any:
        begun.set()
        assert released.wait(10)
        return request

    server = Server(path, KEY, answer, 10)
    calling = threading.Thread(target=lambda: responses.append(call(path, KEY, 1, 10)))
    calling.start()
    assert begun.wait(10)
    closing_ = threading.Thread(target=server.close)
    closing_.start()
    assert closing_.is_alive()
    released.set()
    closing_.join(10)
    calling.join(10)
    assert (responses, path.exists()) == ([1], False)
    server.close()


def test_close_waits_for_a_request_that_is_just_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that accepts it is frozen before it starts the thread of the request."""
    accepted, closing_ = threading.Event(), threading.Event()
    join = threading.Thread.join
    finished: list[Any] = []

    class Frozen(Connection):
        def __init__(self, handle: int) -> None:
            super().__init__(handle)
            if threading.current_thread().name == "streamgroups-rpc" and not accepted.is_set():
                accepted.set()
                assert closing_.wait(10)

    def join_later(thread: threading.Thread, timeout: float | None = None) -> None:
        closing_.set()
        join(thread, timeout)

    def answer(request: Any) -> Any:
        time.sleep(0.2)
        finished.append(request)
        return request

    monkeypatch.setattr(sockets, "Connection", Frozen)
    server = Server(path, KEY, answer, 10)
    calling = threading.Thread(target=call, args=(path, KEY, 1, 10))
    calling.start()
    assert accepted.wait(10)
    monkeypatch.setattr(threading.Thread, "join", join_later)
    server.close()
    assert finished == [1]
    join(calling, 10)


def test_a_request_without_a_thread_does_not_end_the_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container limits the number of threads. Later requests find one."""
    with closing(Server(path, KEY, echo, 10)):
        with monkeypatch.context() as limited:

            def fail(_: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            limited.setattr(threading.Thread, "start", fail)
            with pytest.raises((OSError, EOFError)):
                call(path, KEY, 1, 10)
        assert call(path, KEY, 2, 10) == 2


def test_a_server_listens_before_its_socket_has_the_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise another process could take it for one of a killed process, and remove it."""
    listen, seen = socket.socket.listen, []

    def listen_later(listening: socket.socket, backlog: int) -> None:
        seen.append((path.exists(), unnamed(path).exists()))
        listen(listening, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_later)
    with closing(Server(path, KEY, echo, 10)):
        assert seen == [(False, True)]
        assert call(path, KEY, 1, 10) == 1
    assert list(path.parent.iterdir()) == []


def test_a_socket_that_is_used_is_marked_as_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that clean directories of temporary files take a socket with this name for an unused one."""
    monkeypatch.setattr(sockets, "_RENEW_S", SHORT_S)
    with closing(Server(path, KEY, echo, 10)):
        os.utime(path, (0, 0))
        wait_until(lambda: path.stat().st_mtime > 0, "the socket is renewed")
        assert call(path, KEY, 1, 10) == 1


def test_a_socket_that_was_removed_is_created_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "_RENEW_S", SHORT_S)
    with closing(Server(path, KEY, echo, 10)):
        path.unlink()
        wait_until(path.exists, "the socket is created again")
        assert call(path, KEY, 1, 10) == 1
    assert not path.exists()
    assert "was created again" in caplog.text


def test_a_server_whose_directory_was_removed_closes_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "_RENEW_S", SHORT_S)
    (directory := path.parent / "session").mkdir()
    server = Server(directory / "user", KEY, echo, 10)
    (directory / "user").unlink()
    directory.rmdir()
    wait_until(lambda: bool(caplog.messages), "the problem is logged")
    began_s = time.monotonic()
    server.close()
    assert not server._accepting.is_alive()
    assert time.monotonic() - began_s < 5
    assert len([it for it in caplog.records if it.levelname == "WARNING"]) == 1
    assert "Restart the program" in caplog.text


def test_a_server_without_free_file_descriptors_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, attempts = socket.socket.accept, list[float]()

    def fail_at_first(listening: socket.socket) -> Any:
        attempts.append(time.monotonic())
        if len(attempts) <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    server = Server(path, KEY, echo, 10)
    with closing(server):
        monkeypatch.setattr(socket.socket, "accept", fail_at_first)
        assert call(path, KEY, 1, 10) == 1
        wait_until(lambda: len(attempts) >= 3, "the server has failed")
        assert call(path, KEY, 2, 10) == 2
    assert attempts[2] - attempts[0] > 0.15
    assert [it.levelname for it in caplog.records].count("WARNING") == 1


def test_a_process_that_ends_without_close_removes_its_socket_but_its_fork_does_not(path: Path) -> None:
    listen = (
        "import os, sys; from pathlib import Path; from streamgroups_spark.bridge.sockets import Server\n"
        "server, path = Server(Path(sys.argv[1]), b'', bool, 1), Path(sys.argv[1])\n"
        "pid = os.fork()\n"
        "if not pid: sys.exit(0)\n"
        "os.waitpid(pid, 0); print(path.exists())"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", listen, str(path)], env=paths, capture_output=True, text=True, check=True
    )
    assert (ended.stdout, path.exists()) == ("True\n", False)


def test_no_process_listens(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        call(path, KEY, 1, 10)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with pytest.raises(ConnectionRefusedError):
        call(path, KEY, 1, 10)


def test_a_stopped_process_that_accepts_no_connection(path: Path, listening: socket.socket) -> None:
    """The backlog has room, and later it is full: the connection itself blocks."""
    with ExitStack() as stack:
        for _ in range(5):
            with pytest.raises(TimeoutError, match=r"no response from socket within 0\.05 s"):
                call(path, KEY, 1, SHORT_S)
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(str(path))


def test_a_process_that_stops_within_a_message(path: Path, listening: socket.socket) -> None:
    """``Connection.poll`` would see the first byte, and ``recv_bytes`` then wait for the others."""

    def work() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(b"\0\0\0\x64#CHALLENGE#")
            accepted.recv(1)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(TimeoutError):
        call(path, KEY, 1, SHORT_S)
    thread.join(10)


def test_a_client_that_stops_within_a_message_ends_its_thread(path: Path) -> None:
    server = Server(path, KEY, echo, SHORT_S)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.connect(str(path))
        stopped.sendall(b"\0\0")
        while stopped.recv(4096):
            pass
    server.close()


@pytest.mark.parametrize("first", [b"", b"\0\0\0\x05hello", b"\xff\xff\xff\xfe", b"HTTP/1.1 400"])
def test_a_process_that_is_no_server(path: Path, listening: socket.socket, first: bytes) -> None:
    def work() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(first)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises((ConnectionError, OSError)):
        call(path, KEY, 1, 1)
    thread.join(10)


def test_both_processes_need_the_key(path: Path) -> None:
    requests: list[Any] = []
    with closing(Server(path, KEY, requests.append, 10)):
        with pytest.raises(ConnectionError, match="AuthenticationError"):
            call(path, b"another key", 1, 10)
        with Client(str(path), "AF_UNIX") as connection, suppress(OSError, EOFError):
            for _ in range(4):
                connection.send_bytes(b"1")
                connection.recv_bytes()
    assert requests == []


def test_a_server_without_the_key_gets_no_request(path: Path, listening: socket.socket) -> None:
    received: list[bytes] = []

    def work() -> None:
        accepted, _ = listening.accept()
        with Connection(accepted.detach()) as connection:
            # Whatever the client responds, this server accepts it, and then responds with a wrong digest.
            with suppress(Exception):
                deliver_challenge(connection, b"another key")
            with suppress(OSError, EOFError):
                while True:
                    received.append(connection.recv_bytes())

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(ConnectionError, match="AuthenticationError"):
        call(path, KEY, {"secret": 1}, 10)
    thread.join(10)
    assert not any(b"secret" in message for message in received)


def test_a_failure_is_an_error_of_this_library(path: Path) -> None:
    def fail(_: Any) -> None:
        raise KeyError("x")

    with closing(Server(path, KEY, fail, 10)):
        with pytest.raises(StreamGroupsError, match=r"failed to handle a request \(KeyError: 'x'\)"):
            call(path, KEY, 1, 10)
        with Client(str(path), "AF_UNIX", authkey=KEY) as connection:
            connection.send_bytes(b"no JSON")
            assert b"JSONDecodeError" in connection.recv_bytes()
