"""The negative controls: campaigns with a disabled protection, each with the name of the anomaly that it must leave.

``python -m integration_tests.campaign.controls`` runs each of them once and prints a table. Its exit code is 0 if all are noticed.
``--only fence order`` runs some of them. Each control is a command of ``integration_tests.campaign`` or
``campaign.processors``, whose exit code with ``--sabotaged`` is 0 if the campaign has found this anomaly.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_ROOT = Path(__file__).parent.parent.parent
#: The names of the anomalies that the campaign itself finds. ``WRONG_SAVEPOINT``: a savepoint lacks a file, or a command has
#: accepted or rejected it wrongly. ``WRONG_FORK``: a fork has failed, or has other rows than those after its positions. ``GIVEN_UP``: a program
#: has ended by itself.
WRONG_SAVEPOINT, WRONG_FORK, STUCK, GIVEN_UP = "wrong savepoint", "wrong fork", "stuck", "program ended"
#: The anomaly that each disabled protection leaves, by the names of ``history.anomalies``, ``campaign.verdict`` and
#: ``campaign.processors``.
EXPECTED: Mapping[str, str] = MappingProxyType(
    {
        "ledger": "duplicate",
        "fence": "split ownership",
        "batch-id": "lost write",
        "epoch": "duplicate",
        "output": "lost write",
        "state-offset": "stale state",
        "state-segment": "stale state",
        "state-file": "stale state",
        "watermark": "watermark ahead of data",
        "savepoint-file": WRONG_FORK,
        "savepoint-offset": WRONG_FORK,
        "order": "non-monotonic write",
        "range": "skipped read",
        "partition": "unseen record",
        "abort": "aborted read",
        "checksum": "stale state",
        "idempotence": "duplicate",
        "lease": "unseen record",
        "redaction": "shown secret",
        "cursor-commit": "lost write",
        "placement": "outdated workers run",
        "fences": "copies twice",
    }
)


def is_noticed(sabotaged: str, anomalies: Mapping[str, int]) -> bool:
    """Whether a campaign has found the anomaly that its disabled protection leaves.

    >>> is_noticed("fence", {"split ownership": 4}), is_noticed("fence", {"duplicate": 4})
    (True, False)
    """
    return anomalies.get(EXPECTED[sabotaged], 0) > 0


def verdict_of(sabotaged: str, anomalies: Mapping[str, int]) -> str:
    """The line that a campaign with a disabled protection prints at its end.

    >>> verdict_of("fence", {"split ownership": 4})
    "noticed: without fence 'split ownership' is expected, and there is split ownership 4"
    """
    noticed = "noticed" if is_noticed(sabotaged, anomalies) else "not noticed"
    found = ", ".join(f"{name} {n:,}" for name, n in sorted(anomalies.items())) or "nothing"
    return f"{noticed}: without {sabotaged} '{EXPECTED[sabotaged]}' is expected, and there is {found}"


@dataclass(frozen=True, slots=True)
class Control:
    """A control.

    Args:
        sabotaged: the disabled protection.
        kind: the kind of the queries; empty for processors.
        sink: the sink; empty for processors.
        kills: the number of faults.
        options: more options.
    """

    sabotaged: str
    kind: str = "stateless"
    sink: str = "kafka"
    kills: int = 2
    options: tuple[str, ...] = ()

    def command(self, seed: int) -> list[str]:
        """The command, without the Python program.

        >>> " ".join(Control("fence").command(7)[2:])
        'kafka --kind stateless --protocols classic --kills 2 --sabotaged fence --seed 7'
        """
        common = ["--sabotaged", self.sabotaged, "--seed", str(seed), *self.options]
        if not self.sink:
            return ["-m", "integration_tests.campaign.processors", "--faults", str(self.kills), *common]
        options = ["--kind", self.kind, "--protocols", "classic", "--kills", str(self.kills)]
        return ["-m", "integration_tests.campaign", self.sink, *options, *common]


CONTROLS = (
    Control("ledger"),
    Control("fence"),
    Control("batch-id", sink="postgres"),
    Control("output", sink="postgres"),
    Control("epoch", kind="zombies", sink="postgres", options=("--resets", "2")),
    Control("state-offset", kind="windows", sink="delta"),
    Control("state-segment", kind="windows", sink="postgres"),
    Control("state-file", kind="windows"),
    Control("watermark", kind="windows"),
    Control("savepoint-file", kind="savepoints", options=("--savepoints", "2")),
    Control("savepoint-offset", kind="savepoints", options=("--savepoints", "2")),
    Control("order"),
    Control("range"),
    Control("partition", options=("--max-lag", "30")),
    Control("abort"),
    Control("checksum", kind="windows"),
    Control("idempotence"),
    Control("lease", kills=1, options=("--max-lag", "45")),
    Control("redaction"),
    Control("cursor-commit", kind="cursors", sink="none"),
    Control("placement", sink="", kills=1),
    Control("fences", sink="", kills=2),
)


def run(controls: Iterable[Control], seed: int, more: Sequence[str], directory: Path) -> list[dict[str, str]]:
    """Runs controls one after the other. Returns a row for each.

    Args:
        controls: the controls.
        seed: their seed.
        more: more options of their commands.
        directory: the directory of their logs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "connectors")])}
    rows = []
    for it in controls:
        began_s, log = time.monotonic(), directory / f"{it.sabotaged}.log"
        with log.open("wb") as output:
            ended = subprocess.run(
                [sys.executable, *it.command(seed), *more],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
                env=environment,
                check=False,
            )
        rows.append(_row(it, ended.returncode, round(time.monotonic() - began_s), log))
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def _row(control: Control, code: int, took_s: int, log: Path) -> dict[str, str]:
    lines = log.read_text(errors="replace").splitlines()
    found = next((it for it in reversed(lines) if it.startswith(("noticed: ", "not noticed: "))), f"see {log}")
    return {
        "without": f"``{control.sabotaged}``",
        "workload": control.kind if control.sink else "processors",
        "sink": control.sink,
        "expected": EXPECTED[control.sabotaged],
        "noticed": "yes" if code == 0 else "**no**",
        "anomalies": found.rpartition(" there is ")[2],
        "seconds": str(took_s),
    }


def main(arguments: Sequence[str]) -> int:
    """Runs the controls, and prints a table. Returns 1 if one is not noticed."""
    from integration_tests.campaign.results import table

    names = sorted({it.sabotaged for it in CONTROLS})
    parser = argparse.ArgumentParser(prog="python -m integration_tests.campaign.controls", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="the disabled protections")
    parser.add_argument("--seed", type=int, default=1, help="of the controls")
    parser.add_argument("--record", action="store_true", help="add the results to docs/campaign-table.rst")
    parser.add_argument("--results", type=Path, help="a file; the result of each control is added as one line")
    parser.add_argument("--logs", type=Path, default=_ROOT / "build" / "controls", help="the directory of the logs")
    given = parser.parse_args(arguments)
    more = ["--record"] if given.record else []
    more += ["--results", str(given.results.resolve())] if given.results else []
    rows = run([it for it in CONTROLS if it.sabotaged in given.only], given.seed, more, given.logs)
    sys.stdout.write(f"{table(rows)}\n")
    return int(any(it["noticed"] != "yes" for it in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
