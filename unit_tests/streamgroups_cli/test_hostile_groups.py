"""A tenant's changes to her own group spoil no tool that reads other groups, and no command that an operator pastes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamgroups import metadata_entries as entries
from streamgroups.coordination import reset_protocol as board
from streamgroups.coordination.reset_protocol import members_group_of
from streamgroups.cursors.argument_checks import readers_of
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.membership import Origin, Owned
from streamgroups.monitoring.monitor import Monitor
from streamgroups.monitoring.snapshots import survey
from streamgroups.partitions import TopicPartition
from streamgroups_admin.reports.exporter import Polls
from streamgroups_cli.cursors import instance_process
from unit_tests.cli_runner import CommandLine

FLIGHTS, MALLORYS = TopicPartition("flights", 0), TopicPartition("mallory", 0)
INFINITE = '{"v":1,"instance":"m","used":Infinity,"until":null,"applied":"","stopped":"","reading":0}'


@pytest.fixture
def admin() -> FakeAdmin:
    """A cluster on which group mallory has a member and an entry of its own making."""
    entries._named.clear()
    cluster = FakeCluster(FakeClock(1_000_000))
    for tp in (FLIGHTS, MALLORYS):
        cluster.create_topic(tp.topic, 1)
        cluster.produce(tp, 10)
    cluster.commit("billing", {FLIGHTS: 3})
    first = {MALLORYS: Owned(0, Origin.STARTING)}
    group = FakeGroup(cluster, "mallory")
    FakeMember(group, "m", topics=lambda: ["mallory"], first_positions=lambda _: first).join(1_000)
    group.settle()
    cluster.commit(members_group_of("mallory"), {MALLORYS: 0}, INFINITE)
    return FakeAdmin(cluster)


def test_the_exporter_of_all_groups_continues_beside_a_bad_entry(
    admin: FakeAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    polls = Polls(Monitor(admin, admin, FakeClock(1_000_000)).poll, lambda: 0)
    assert polls.refresh() is None
    assert {g.snapshot.description.group_id for g in polls.groups} == {"billing", "mallory"}
    assert "'mallory.streamgroups' at mallory-0 cannot be read" in caplog.text


def test_the_exporter_outlives_any_exception() -> None:
    def poll() -> list[object]:
        raise KeyError("x")

    polls = Polls(poll, lambda: 0)  # type: ignore[arg-type]
    assert str(polls.refresh()) == "Cannot poll the groups: KeyError: 'x'."
    assert not polls.groups


def test_a_group_that_cannot_be_judged_is_left_out(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(board.MemberEntry, "parse", broken)
    assert [s.description.group_id for s in survey(admin, admin, ["billing", "mallory"])] == ["billing"]
    assert "Group 'mallory' is skipped: RuntimeError: bug" in caplog.text
    with pytest.raises(RuntimeError, match="bug"):
        survey(admin, admin, ["mallory"])


def test_a_new_group_is_made_beside_a_bad_entry() -> None:
    committed = {"billing": {FLIGHTS: ""}, "mallory": {FLIGHTS: ""}, members_group_of("mallory"): {FLIGHTS: INFINITE}}
    found = readers_of(["flights"], {"billing": False, "mallory": False}, committed)["flights"]
    assert [(r.group, r.last_used_ms) for r in found] == [("billing", None), ("mallory", None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", '{"kind":"streamgroups-offsets","schema_version":1,"groups":' + "[" * 100_000),
        ("long.json", '{"kind":"streamgroups-offsets","schema_version":1,"groups":[' + "9" * 5_000 + "]}"),
        ("long.csv", "flights,0," + "9" * 5_000 + "\n"),
        ("separator.csv", "flights,0,\x1cx\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected(cli: CommandLine, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    result = cli("groups", "import", str(tmp_path / name), "--group", "billing")
    assert (result.code, name in result.err) == (2, True)


def test_a_background_process_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    package = tmp_path / "streamgroups"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('mallory')")
    setup, _, _ = instance_process._START.rpartition("from streamgroups")
    poll = f"{setup} import streamgroups; print(streamgroups.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment.pop("PYTHONSAFEPATH", None)
    found = subprocess.run(
        [sys.executable, "-c", poll], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "mallory" not in found.stderr
    assert str(tmp_path) not in found.stdout
    assert found.stdout.strip().endswith("__init__.py")
