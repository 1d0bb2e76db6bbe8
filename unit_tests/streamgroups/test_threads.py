"""Requests in threads: all results in order, the first error, and no process that waits for a storage."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamgroups.threads import N_THREADS, in_threads


def test_the_results_have_the_order_of_the_items() -> None:
    together = threading.Barrier(N_THREADS, timeout=60)

    def request(item: int) -> int:
        if item < N_THREADS:
            together.wait()
        return -item

    assert list(in_threads(request, range(500))) == [-item for item in range(500)]


def test_after_an_error_no_request_begins() -> None:
    begun = []

    def request(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        list(in_threads(request, range(1_000)))
    assert len(begun) < 100


def test_a_storage_that_hangs_does_not_keep_a_process_alive() -> None:
    program = (
        "import threading\n"
        "from streamgroups.threads import in_threads\n"
        "begun = threading.Event()\n"
        "def hang(_):\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"
        "threading.Thread(target=lambda: list(in_threads(hang, range(100))), daemon=True).start()\n"
        "begun.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_X7_a_storage_that_hangs_does_not_keep_a_process_with_stable_batches_alive() -> None:
    program = (
        "import threading\n"
        "from types import SimpleNamespace\n"
        "from streamgroups.state.file_names import StateFileName\n"
        "from streamgroups_operators.pin_store import PinStore\n"
        "begun = threading.Event()\n"
        "def hang(_):\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"
        "names = {StateFileName(n, '1f3a9c2b7d10', 0, 0): 0 for n in range(2)}\n"
        "files = SimpleNamespace(list=lambda: names, read=hang)\n"
        "store = PinStore('/pins', 'billing', 'mails', files, files)\n"
        "threading.Thread(target=store.all, daemon=True).start()\n"
        "begun.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_only_checks_of_the_command_line_use_threads_that_keep_a_process_alive() -> None:
    root = Path(__file__).parents[2]
    using = {
        str(path.relative_to(root))
        for folder in ("streamgroups", "connectors")
        for path in (root / folder).rglob("*.py")
        if "ThreadPoolExecutor" in path.read_text(encoding="utf-8")
    }
    assert using == {
        "connectors/streamgroups_cli/doctor.py",
        "connectors/streamgroups_sinks/delta/probe.py",
    }
