"""Runs the command line in this process, with a cluster in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.membership import Origin, Owned
from streamgroups_admin.cluster import Cluster
from streamgroups_cli import connection as connecting
from streamgroups_cli import main
from streamgroups_cli.output import print_message
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.properties_file import command_config


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class CommandLine:
    """The command line, and its cluster in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.admin = FakeAdmin(self.cluster)
        #: The settings of the last connection.
        self.config: ClientConfig | None = None
        #: The number of connections of all commands.
        self.connections = 0
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.setattr(connecting, "open_cluster", self._open)
        monkeypatch.setenv("COLUMNS", "200")
        # The contexts of the developer.
        monkeypatch.setenv("STREAMGROUPS_CONFIG", "/nonexistent/config.toml")

    @contextmanager
    def _open(
        self, bootstrap_server: str | None, file: Path | None, settings: Mapping[str, str], timeout_s: float
    ) -> Iterator[Cluster]:
        self.cluster.check_reachable()
        self.connections += 1
        config = self.config = command_config(bootstrap_server or "broker:9092", file, settings)
        yield Cluster(config, self.admin, self.admin, {"Metadata": 1}, self.clock, print_message)

    def __call__(self, *arguments: str) -> Result:
        self._monkeypatch.setattr(sys, "argv", ["streamgroups", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        result = self._capsys.readouterr()
        return Result(int(ended.value.code or 0), result.out, result.err)

    def on_terminal(self, *arguments: str, columns: int = 200) -> Result:
        """Runs a command whose standard output is a terminal."""
        with self._monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            patch.setattr(sys.stdout, "isatty", lambda: True)
            return self(*arguments)

    def join(self, group_id: str, topic: str, name: str = "alice") -> FakeMember:
        """Adds a member that owns all partitions of a topic to a group."""
        group = FakeGroup(self.cluster, group_id)
        member = FakeMember(
            group,
            name,
            topics=lambda: [topic],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
        )
        member.join(1_000)
        group.settle()
        return member
