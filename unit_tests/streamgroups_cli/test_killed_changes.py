"""O2: a change or an undo that was killed, interrupted or failed at any step is undone or completed by the next command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.fakes import FakeAdmin
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_admin.groups import applying
from unit_tests.cli_runner import CommandLine

EXECUTE_UNDO = ("groups", "undo", "board", "--execute")
RESET = ("groups", "reset", "board", "--all-topics", "--execute")


class Killed(BaseException):
    """The end of the process. No part of it handles this."""


class Steps:
    """The requests to the brokers and the changes of files, where one step fails before or after its effect."""

    def __init__(self, failing: int, failure: BaseException, *, after: bool, files: bool) -> None:
        self.failing, self.failure, self.after, self.files = failing, failure, after, files
        self.done = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            number, self.done = self.done, self.done + 1
            if number == self.failing and not self.after:
                raise self.failure
            result = function(*args, **kwargs)
            if number == self.failing:
                raise self.failure
            return result

        return step

    def run(self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, *command: str) -> bool:
        """Runs a command. Returns whether a step has failed."""
        admin = cli.admin
        with monkeypatch.context() as patch:
            patch.setattr(cli, "admin", _Wrapped(admin, self))
            if self.files:
                for owner, name in ((os, "link"), (Path, "unlink"), (Path, "touch")):
                    patch.setattr(owner, name, self.wrap(getattr(owner, name)))
            with suppress(Killed):
                cli(*command)
        return self.done > self.failing


class _Wrapped:
    def __init__(self, admin: FakeAdmin, steps: Steps) -> None:
        self._admin, self._steps = admin, steps

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._steps.wrap(getattr(self._admin, name))


def positions(cli: CommandLine) -> list[int]:
    return [it.next_offset for _, it in sorted(cli.admin.committed_offsets(["board"])["board"].items())]


@pytest.fixture
def created(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., CommandLine]:
    numbers = count()

    def board(partitions: int, metadata: str = "") -> CommandLine:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state{next(numbers)}"))
        monkeypatch.setattr(applying, "PARTITIONS_PER_COMMIT", 1)
        command_line = CommandLine(monkeypatch, capsys)
        command_line.cluster.create_topic("flights", partitions)
        tps = [TopicPartition("flights", p) for p in range(partitions)]
        for tp in tps:
            command_line.cluster.produce(tp, 10)
        command_line.admin.alter_offsets("board", {tp: Committed(tp.partition + 4, metadata) for tp in tps})
        return command_line

    return board


def each_step(failure: type[BaseException]) -> Iterator[Steps]:
    # A process that ends after a step has the same effect as one that ends before the next step.
    is_kill = failure is Killed
    for failing in count():
        for after in (False,) if is_kill else (False, True):
            yield Steps(failing, failure("No broker responded."), after=after, files=is_kill)


@pytest.mark.parametrize(
    ("commits", "failure", "metadata"),
    [
        (1, Killed, "streamgroups:shared"),
        (4, Killed, ""),
        (2, KeyboardInterrupt, ""),
        (2, BrokerUnreachable, "streamgroups:shared"),
    ],
)
def test_O2_a_repeated_undo_completes_an_undo_that_failed_at_any_step(
    created: Callable[..., CommandLine],
    monkeypatch: pytest.MonkeyPatch,
    commits: int,
    failure: type[BaseException],
    metadata: str,
) -> None:
    before, changed = [p + 4 for p in range(commits)], [10] * commits
    for steps in each_step(failure):
        board = created(commits, metadata)
        assert board(*RESET, "--to-latest").code == 0
        if not steps.run(board, monkeypatch, *EXECUTE_UNDO):
            break
        where = (steps.failing, steps.after, positions(board))
        assert board(*EXECUTE_UNDO).code == 0
        assert (where, positions(board)) == (where, before)
        assert board(*EXECUTE_UNDO).code == 0
        assert (where, positions(board)) == (where, changed), "the undo of the undo"
    assert steps.failing > commits + 5


@pytest.mark.parametrize(("commits", "failure"), [(3, Killed), (2, KeyboardInterrupt)])
def test_O2_an_undo_after_a_reset_that_was_killed_reverts_the_last_change_with_an_effect(
    created: Callable[..., CommandLine], monkeypatch: pytest.MonkeyPatch, commits: int, failure: type[BaseException]
) -> None:
    before, changed = [p + 4 for p in range(commits)], [10] * commits
    seen = set()
    for steps in each_step(failure):
        board = created(commits)
        assert board(*RESET, "--to-latest").code == 0
        if not steps.run(board, monkeypatch, *RESET, "--to-earliest"):
            break
        reached = positions(board)
        expected = before if reached == changed else changed
        seen.add(tuple(reached))
        assert board(*EXECUTE_UNDO).code == 0
        assert (steps.failing, positions(board)) == (steps.failing, expected)
    assert len(seen) == commits + 1


def test_O2_an_undo_whose_preparation_fails_names_its_error_and_leaves_no_file(
    created: Callable[..., CommandLine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    board = created(2)
    assert board(*RESET, "--to-latest").code == 0
    files = sorted(tmp_path.rglob("*.json*"))

    def fail(*_: object) -> None:
        raise BrokerUnreachable("No broker responded.", remedy="Try again.")

    with monkeypatch.context() as patch:
        patch.setattr("streamgroups_cli.groups.apply.cancel_reset_requests", fail)
        result = board(*EXECUTE_UNDO)
    assert (result.code, positions(board), sorted(tmp_path.rglob("*.json*"))) == (1, [10, 10], files)
    assert "Error: No broker responded. No offset was changed. Try again." in result.err
    assert board(*EXECUTE_UNDO).code == 0
    assert positions(board) == [4, 5]


def test_O2_an_undo_without_a_response_is_repeated(
    created: Callable[..., CommandLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = created(2)
    assert board(*RESET, "--to-latest").code == 0
    error = BrokerUnreachable("No broker responded.")
    for tp in board.admin.committed_offsets(["board"])["board"]:
        board.admin.failures["board", tp] = error
    result = board(*EXECUTE_UNDO)
    assert (result.code, "undo it with: streamgroups groups import /" in result.err) == (1, True)
    board.admin.failures.clear()
    assert board(*EXECUTE_UNDO).code == 0
    assert positions(board) == [4, 5]
