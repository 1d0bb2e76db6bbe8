"""Wall clocks that jump, and disks that get full."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from integration_tests.campaign import full_disks, moved_clocks
from integration_tests.campaign.full_disks import SmallDisk, full_until_brokers_end, full_until_noticed
from integration_tests.campaign.machines import Machine
from integration_tests.campaign.moved_clocks import HOUR_S, MovedClocks
from integration_tests.history import real_time
from integration_tests.history.real_time import CLOCK, CONTENT, real_ms
from streamgroups_broker import EmbeddedKafka

_CAN_COMPILE = shutil.which("cc") or shutil.which("gcc")
_IS_ROOT = os.geteuid() == 0


@pytest.mark.skipif(not _CAN_COMPILE, reason="needs a compiler for C")
def test_a_clock_jumps_in_python_only_and_the_real_time_is_known(tmp_path: Path) -> None:
    clocks = MovedClocks(tmp_path, 2)
    environment = {**os.environ, **clocks.environment("ann")}
    code = "import time; from integration_tests.history.real_time import real_ms; print(int(time.time()), real_ms())"
    # The name of a program decides whether its clock moves.
    other = tmp_path / "java"
    other.symlink_to(Path("/bin/date"))

    def run(*command: str) -> str:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    for expected_s in (HOUR_S, 0, -HOUR_S, 0):
        assert clocks.jump("ann") == expected_s
        moved_s, right_ms = map(int, run(sys.executable, "-c", code).split())
        assert abs(moved_s - expected_s - time.time()) < 300
        assert abs(right_ms / 1_000 - time.time()) < 300
        assert abs(int(run(str(other), "+%s")) - time.time()) < 300
    assert clocks.reads("ann") > 0
    clocks.environment("bob")
    assert clocks.reads("bob") == 0


@pytest.mark.skipif(not _CAN_COMPILE, reason="needs a compiler for C")
def test_a_jump_that_no_process_reads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = MovedClocks(tmp_path, 1)
    clocks.environment("ann")
    monkeypatch.setattr(moved_clocks, "_READ_TIMEOUT_S", 0.01)
    with pytest.raises(AssertionError, match="ann reads its moved clock"):
        clocks.jump_and_wait("ann")


def test_a_library_without_effect_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _CAN_COMPILE:
        pytest.skip("needs a compiler for C")
    nothing = tmp_path / "nothing.c"
    nothing.write_text("int nothing;")
    monkeypatch.setattr(moved_clocks, "_SOURCE", nothing)
    with pytest.raises(AssertionError, match="does not move the clock"):
        MovedClocks(tmp_path, 1)


def test_the_real_time_follows_a_jump_between_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clock"
    file.write_bytes(CONTENT.pack(0, 0))
    monkeypatch.setenv(CLOCK, str(file))
    times = iter([5_000_000_000, 3_605_000_000_000])

    def time_ns() -> int:
        file.write_bytes(CONTENT.pack(3_600, 0))
        return next(times)

    monkeypatch.setattr(time, "time_ns", time_ns)
    assert real_ms() == 5_000


@pytest.mark.skipif(not _IS_ROOT, reason="mounts a file system")
def test_a_full_disk_is_full_until_a_query_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disks, "_FULL_S", 0.0)
    disk = SmallDisk(tmp_path / "disk", 1)
    log, was_full = tmp_path / "ann.log", []
    log.write_text("an error of before: No space left on device\n")

    def query() -> None:
        time.sleep(0.1)
        try:
            (disk.path / "state").write_bytes(b"x")
        except OSError as e:
            log.write_text(log.read_text() + str(e))

    try:
        thread = threading.Thread(target=query)
        assert not disk.is_full
        assert full_until_noticed(disk, [log], lambda: was_full.append(disk.is_full), thread.start) == 1
        thread.join()
        assert all(was_full)
        assert not disk.is_full
    finally:
        disk.unmount()
    assert not os.path.ismount(disk.path)


@pytest.mark.skipif(not _IS_ROOT, reason="mounts a file system")
def test_a_full_disk_without_an_error_of_a_query_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disks, "_TIMEOUT_S", 0.01)
    disk = SmallDisk(tmp_path / "disk", 1)
    try:
        with pytest.raises(AssertionError, match="a query fails because"):
            full_until_noticed(disk, [tmp_path / "ann.log"], lambda: None, lambda: None)
        assert not disk.is_full
    finally:
        disk.unmount()


def test_other_campaigns_need_neither_a_disk_nor_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    machine = Machine(tmp_path, [("after-commit", "query")], 1)
    assert machine.storage == tmp_path
    assert machine.environment("ann") == {}
    assert machine.faults(tmp_path, [], lambda: None) == {}
    machine.close()


@pytest.mark.parametrize("module", [moved_clocks, real_time])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


class FakeKafka:
    """Brokers on a disk. One ends if a write fails."""

    node_ids = (1, 2)

    def __init__(self, path: Path) -> None:
        self.path, self.running, self.restarted = path, True, list[int]()

    def restart_node(self, node_id: int) -> None:
        self.restarted.append(node_id)

    def write(self) -> None:
        try:
            (self.path / "log").write_bytes(b"x")
        except OSError:
            self.running = False


@pytest.mark.skipif(not _IS_ROOT, reason="mounts a file system")
def test_brokers_restart_when_there_is_space_again(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", 1)
    kafka = FakeKafka(disk.path)
    try:
        full_until_brokers_end(disk, cast(EmbeddedKafka, kafka), kafka.write, lambda: None)
        assert kafka.restarted == [1, 2]
        assert not disk.is_full
    finally:
        disk.unmount()


@pytest.mark.skipif(not _IS_ROOT, reason="mounts a file system")
def test_brokers_that_do_not_notice_a_full_disk_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disks, "_TIMEOUT_S", 0.01)
    disk = SmallDisk(tmp_path / "disk", 1)
    kafka = cast(EmbeddedKafka, FakeKafka(disk.path))
    try:
        with pytest.raises(AssertionError, match="a broker ends because"):
            full_until_brokers_end(disk, kafka, lambda: None, lambda: None)
    finally:
        disk.unmount()
