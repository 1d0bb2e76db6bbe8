"""Checks histories: ``python -m integration_tests.history check FILE...``.

All files together are one history: the file ``history.jsonl`` of a campaign, or the files of its processes. Exit codes: 0, no anomaly;
1, an anomaly; 2, a file is not a history.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from integration_tests.history.checker import check
from integration_tests.history.files import read_files


def main(arguments: Sequence[str]) -> int:
    """Prints the verdict of each invariant, and the anomalies."""
    parser = argparse.ArgumentParser(prog="python -m integration_tests.history", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="decides the invariants of one history")
    checking.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the files of the history")
    given = parser.parse_args(arguments)
    try:
        report = check(read_files(given.files))
    except (OSError, ValueError) as e:
        sys.stderr.write(f"{e}\n")
        return 2
    sys.stdout.write(f"{report}\n")
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
