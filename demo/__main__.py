"""``python -m demo``: the scenario, its verification and its report. The exit code is 0 only if all checks pass.

Called by ``make demo``, from the root of a clone. Needs the extra ``demo`` and Java 17; no Kafka, no Docker.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from rich.console import Console

from demo import report
from demo.check import check
from demo.flights import airport_names, delays_by_pandas
from demo.processes import Folders
from demo.scenario import DemoFailed, run
from streamgroups.errors import StreamGroupsError

_OUTPUT = Path("demo-output")


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m demo", description="Two Spark queries share a topic and its windows; one is killed."
    )
    parser.add_argument(
        "--protocol", choices=["classic", "consumer"], default="classic", help="the group protocol (consumer: KIP-848)"
    )
    protocol = parser.parse_args().protocol
    console = Console()
    folders = _prepare(Folders(_OUTPUT.resolve()))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _play(console, folders, protocol)
    except KeyboardInterrupt:
        console.print("Interrupted. All processes of the demo are stopped.", highlight=False)
        code = 130
    except (DemoFailed, StreamGroupsError) as e:
        console.print("[bold red]The demo failed.[/bold red]")
        console.print(str(e), markup=False, highlight=False, soft_wrap=True)
        code = 1
    console.print(f"Logs: {_short(folders.logs)}", highlight=False, soft_wrap=True)
    return code


def _play(console: Console, folders: Folders, protocol: str) -> int:
    began_s = time.monotonic()
    outcome = run(console, folders, protocol, began_s)
    with console.status("Checking"):
        results = check(
            outcome.output,
            outcome.events,
            outcome.ends,
            outcome.committed,
            killed=outcome.killed,
            expected=delays_by_pandas(),
        )
    names = airport_names()
    folders.report.write_text(report.html(outcome, results, names), encoding="utf-8")
    folders.image.write_text(report.image(outcome), encoding="utf-8")
    report.show(console, outcome, results, names)
    good = all(result.good for result in results)
    took = f"The demo took {time.monotonic() - began_s:.0f} s"
    verdict = "all checks passed" if good else "[bold red]a check failed[/bold red]"
    console.print(f"\n{took}; {verdict}. Logs: {_short(folders.logs)}", highlight=False, soft_wrap=True)
    console.print(f"Timeline: {_short(folders.report)}", highlight=False, soft_wrap=True)
    return 0 if good else 1


def _prepare(folders: Folders) -> Folders:
    """Deletes the files of an earlier run, and no others."""
    for folder in (folders.run, folders.logs):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (folders.history, folders.logs):
        folder.mkdir(parents=True)
    for file in (folders.report, folders.image):
        file.unlink(missing_ok=True)
    return folders


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
