"""Processes of a session find each other, and nobody else."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups_spark.internals import rpc as rendezvous
from streamgroups_spark.internals.rpc import Answering, ask, directory_of


@pytest.fixture
def session(temporary: Path) -> str:
    """A session of its own, in a directory of its own."""
    return uuid.uuid4().hex[:12]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of temporary files with a short name, unlike ``tmp_path``."""
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield Path(directory)


def test_all_who_have_an_answer_are_heard(session: str) -> None:
    def echo(name: str) -> Any:
        return lambda question: (name, question) if name != "c" else None

    with (
        closing(Answering(session, echo("a"))),
        closing(Answering(session, echo("b"))),
        closing(Answering(session, echo("c"))),
    ):
        assert sorted(ask(session, {"n": 1})) == [("a", {"n": 1}), ("b", {"n": 1})]
        assert ask("another", {"n": 1}) == []
    assert ask(session, {"n": 1}) == []


def test_a_refusal_is_raised_where_it_was_asked(session: str) -> None:
    def reject(_: object) -> None:
        raise FencedMember("Gone.", remedy="Restart.")

    with closing(Answering(session, reject)):
        for _ in range(2):
            with pytest.raises(FencedMember, match=r"Gone\. Restart\."):
                ask(session, 0)


def test_a_killed_one_is_forgotten(session: str, temporary: Path) -> None:
    listen = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from streamgroups_spark.internals.rpc import Answering\n"
        "listening = Answering(sys.argv[2], lambda question: question); print(flush=True); sys.stdin.read()"
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
        assert ask(session, "hello") == ["hello"]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert ask(session, "hello") == []
        assert list(directory_of(session).iterdir()) == []


def test_what_killed_sessions_have_left_is_removed(session: str, temporary: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(directory_of("killed") / "one"))
    with closing(Answering("alive", lambda question: question)), closing(Answering(session, lambda question: question)):
        sessions = {path.name for path in directory_of(session).parent.iterdir()}
        assert sessions == {"alive", session}
        assert ask("alive", 1) == [1]


def test_a_directory_that_others_may_enter_is_refused(session: str) -> None:
    directory_of(session).chmod(0o755)
    with pytest.raises(StreamGroupsError, match="other users can access it"):
        ask(session, 0)


def test_a_long_directory_of_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The address of a Unix socket is short."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 20)))
    session = uuid.uuid4().hex[:12]
    with closing(Answering(session, lambda question: question)):
        assert ask(session, 1) == [1]
    directory_of(session).rmdir()


def test_one_who_asks_nothing_stops_nobody(session: str) -> None:
    with closing(Answering(session, lambda question: question)):
        (path,) = directory_of(session).iterdir()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
        assert ask(session, 1) == [1]


def test_every_exception_of_an_answer_reaches_the_process_that_asked(session: str) -> None:
    unpicklable = threading.Lock()

    def answer(question: str) -> object:
        if question == "fails":
            raise KeyError("x")
        return unpicklable if question == "cannot be pickled" else question

    with closing(Answering(session, answer)):
        for question, why in (("fails", "KeyError: 'x'"), ("cannot be pickled", "TypeError: cannot pickle")):
            with pytest.raises(StreamGroupsError, match=why):
                ask(session, question)
            assert ask(session, "still there") == ["still there"]


def test_a_question_that_cannot_be_read_is_answered_too(session: str) -> None:
    with closing(Answering(session, lambda question: question)):
        (path,) = directory_of(session).iterdir()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b"\x80no pickle")
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answered:
                assert isinstance(pickle.load(answered), StreamGroupsError)
        assert ask(session, 1) == [1]


def test_no_listener_and_no_answer_are_told_apart(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer a source would run without the ledger of its group."""
    monkeypatch.setattr(rendezvous, "_RETRY_TIMEOUT_S", 0.05)
    assert ask(session, 1, needs_all=True) == []
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(directory_of(session) / "a"))
        stopped.listen()
        with pytest.raises(StreamGroupsError, match=r"does not respond: no response from a within"):
            ask(session, 1, needs_all=True)
        with closing(Answering(session, lambda question: question)):
            assert ask(session, 1, needs_all=True) == [1]
    (directory_of(session) / "a").unlink()


def test_a_listener_that_breaks_off_gives_no_answer(session: str) -> None:
    with socket.socket(socket.AF_UNIX) as broken:
        broken.bind(str(directory_of(session) / "a"))
        broken.listen()

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    broken.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(StreamGroupsError, match="closed the connection"):
            ask(session, 1, needs_all=True)
        broken.shutdown(socket.SHUT_RDWR)


def test_one_who_does_not_answer_is_as_good_as_gone(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_RETRY_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(directory_of(session) / "stopped"))
        stopped.listen()
        assert ask(session, 1) == []
