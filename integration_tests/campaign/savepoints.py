"""Savepoints of a campaign: they are created while its queries run and are killed, and some of the commands are killed too.

Used by ``integration_tests.campaign``; ``campaign.forks`` restores them. The seed determines the point of each command, so a
campaign can be repeated. Source: SEMANTICS C1-C3.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

from integration_tests.campaign.results import table
from integration_tests.campaign.single_processes import FREEZE_S
from integration_tests.killed_commands import CREATE_POINTS, is_killed, run_command, run_frozen_command

#: Commands without a kill in one round of all points.
_UNDISTURBED = 3
#: The points after which a savepoint is complete.
_COMPLETE_AFTER = (None, "after-record")
#: How many commands of a round leave a complete savepoint, and how many commands it has.
_COMPLETE, _ROUND = _UNDISTURBED + 1, _UNDISTURBED + len(CREATE_POINTS)
#: Errors while a broker is killed, or a reset is not applied yet. Nothing was created.
_EXPECTED_ERRORS = ("broker_unreachable", "group_rejected")
#: How long a savepoint waits for other offsets than those of the one before, in seconds. Faults stop the group for a time.
_MAX_WAIT_S = 10
#: The beginning of the reason of a command that was frozen.
FROZEN = "frozen "
#: The commit record, which this check reads without the tested code.
RECORD = "savepoint.json"


def command_points(names: Mapping[str, object], seed: str) -> Iterator[str | None]:
    """The points at which commands are killed, in a random order that depends on the seed; ``None``: not killed.

    >>> sorted({it for it, _ in zip(command_points(CREATE_POINTS, "1"), range(8))} - {None}) == sorted(CREATE_POINTS)
    True
    """
    choose = random.Random(seed)
    while True:
        points = [*names, *[None] * _UNDISTURBED]
        yield from choose.sample(points, len(points))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command that creates a savepoint.

    Args:
        number: its number, from 1.
        point: where it was killed; ``None``: it has ended itself.
        id: the id of the savepoint; ``None``: it has left no directory.
        status: ``complete``, ``incomplete`` or ``rejected``: it has ended with an error.
        why: the code of the error, or the point at which it was frozen.
    """

    number: int
    point: str | None
    id: str | None
    status: str
    why: str = ""

    def __str__(self) -> str:
        end = f"killed {self.point}" if self.point else self.why or "not killed"
        return f"savepoint {self.number} {self.id or '(no directory)'}: {self.status}, {end}"


@dataclass
class SavepointResults:
    """What happened to the savepoints of a campaign.

    Args:
        attempts: the commands that create savepoints.
        cuts: the number of different positions of complete savepoints.
        restores: how often ``restore`` was killed at each point.
        forks: the number of forks whose output was compared.
        rows: the number of their rows.
        differences: the differences of the forks, by savepoint.
        problems: savepoints and errors that should not exist.
    """

    attempts: list[Attempt] = field(default_factory=list)
    cuts: int = 0
    restores: Counter[str] = field(default_factory=Counter)
    forks: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def count(self, status: str) -> int:
        """The number of commands with a status."""
        return sum(it.status == status for it in self.attempts)

    @property
    def incomplete(self) -> list[str]:
        """The ids of all directories without a commit record."""
        return [it.id for it in self.attempts if it.id is not None and it.status != "complete"]

    def kills(self) -> dict[str, int]:
        """How often a command was killed or frozen, by its name and point."""
        created = Counter(f"create {it.point}" for it in self.attempts if it.point)
        created += Counter(f"create {it.why}" for it in self.attempts if it.why.startswith(FROZEN))
        return dict(sorted((created + Counter({f"restore {p}": n for p, n in self.restores.items()})).items()))

    def to_text(self, kills: Mapping[str, int]) -> str:
        """The counts as a table, and the differences and problems by name.

        Args:
            kills: how often each fault was injected into the queries and the brokers.
        """
        counts = {f"kills: {name}": n for name, n in {**dict(sorted(kills.items())), **self.kills()}.items()}
        counts |= {
            "savepoints, complete": self.count("complete"),
            "different positions of complete savepoints": self.cuts,
            "savepoints, incomplete": len(self.incomplete),
            "commands that were rejected": self.count("rejected"),
            "commands that were killed before they created a directory": sum(
                it.id is None and it.point is not None for it in self.attempts
            ),
            "forks compared": self.forks,
            "rows of forks": self.rows,
            "differences": len(self.differences),
            "problems": len(self.problems),
        }
        rows = [{"what": name, "count": f"{n:,}"} for name, n in counts.items()]
        return "\n".join([table(rows), *self.problems, *self.differences])


class Creation:
    """Creates savepoints of a running group in the background, one after the other.

    Args:
        arguments: the arguments of ``savepoint create``.
        to: the location of the savepoints.
        count: the number of complete savepoints.
        seed: the seed of the points.
        environment: further environment variables of the commands.
        committed: returns the committed offsets of the group.
        report: called with a description of each savepoint.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        to: Path,
        count: int,
        seed: int,
        environment: Mapping[str, str],
        committed: Callable[[], Mapping[int, int]],
        report: Callable[[str], None],
    ) -> None:
        self._arguments, self._to, self._count, self._seed = arguments, to, count, seed
        self._environment, self._committed, self._report = environment, committed, report
        self._last: Mapping[int, int] = {}
        self._condition, self._permitted, self._has_ended = threading.Condition(), 0, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None
        #: The commands so far, and their unexpected ends.
        self.attempts: list[Attempt] = []
        self.problems: list[str] = []
        #: The points at which commands that are not killed are frozen; ``None``: not frozen.
        self._frozen_points = command_points(CREATE_POINTS, f"freeze {seed}")

    def __enter__(self) -> Creation:
        self._to.mkdir(parents=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._has_ended = True
            self._condition.notify()
        self._thread.join(300)
        if self._failure is not None:
            raise AssertionError("the creation of savepoints has failed") from self._failure

    def permit(self, share: float) -> None:
        """Permits a share of the commands, so that they are created during all faults.

        Args:
            share: 0 to 1. With 1 commands run until the required number of savepoints is complete.
        """
        with self._condition:
            self._permitted = 1_000_000 if share >= 1 else round(share * self._count * _ROUND / _COMPLETE)
            self._condition.notify()

    @property
    def is_done(self) -> bool:
        """Whether the required number of savepoints is complete, or the creation has failed."""
        complete = sum(it.status == "complete" for it in self.attempts)
        return complete >= self._count or self._failure is not None

    def _run(self) -> None:
        try:
            for number, point in enumerate(command_points(CREATE_POINTS, f"create {self._seed}")):
                with self._condition:
                    self._condition.wait_for(partial(self._can_continue, number))
                self._wait_for_other_offsets()
                if self._has_ended:
                    return
                self._create(number + 1, point)
        except Exception as e:
            # It is raised at the end of the block.
            self._failure = e

    def _can_continue(self, n_commands: int) -> bool:
        return self._has_ended or (n_commands < self._permitted and not self.is_done)

    def _wait_for_other_offsets(self) -> None:
        """Savepoints of the same offsets show little."""
        deadline_s = time.monotonic() + _MAX_WAIT_S
        while not self._has_ended and time.monotonic() < deadline_s:
            if (found := self._committed()) != self._last:
                self._last = found
                return
            with self._condition:
                self._condition.wait(1)

    def _create(self, number: int, point: str | None) -> None:
        before = set(os.listdir(self._to))
        frozen, was_frozen = next(self._frozen_points) if point is None else None, False
        if frozen is not None:
            result, was_frozen = run_frozen_command(
                CREATE_POINTS[frozen], *self._arguments, seconds=FREEZE_S, environment=self._environment
            )
        else:
            place = None if point is None else CREATE_POINTS[point]
            result = run_command(place, *self._arguments, environment=self._environment)
        new = sorted(set(os.listdir(self._to)) - before)
        id_ = new[0] if new else None
        attempt = self._judged(number, point if is_killed(result) else None, id_, result)
        if was_frozen and not attempt.why:
            attempt = replace(attempt, why=f"{FROZEN}{frozen}")
        self.attempts.append(attempt)
        self._report(str(attempt))

    def _judged(self, number: int, point: str | None, id_: str | None, result: CompletedProcess[str]) -> Attempt:
        is_complete = id_ is not None and (self._to / id_ / RECORD).exists()
        if not is_killed(result) and result.returncode:
            why = error_code(result)
            if why not in _EXPECTED_ERRORS:
                self.problems.append(f"savepoint {number}: {result.stderr[-2_000:]}")
            if is_complete:
                self.problems.append(f"savepoint {number} {id_} is complete in spite of the error {why}")
            return Attempt(number, None, id_, "rejected", why)
        if is_complete is not (point in _COMPLETE_AFTER):
            self.problems.append(f"savepoint {number} {id_}, killed {point}: is complete is {is_complete}")
        return Attempt(number, point, id_, "complete" if is_complete else "incomplete")


def creation_of(
    options: Mapping[str, str],
    directory: Path,
    count: int,
    seed: int,
    sabotaged: str,
    committed: Callable[[], Mapping[int, int]],
    report: Callable[[str], None],
) -> Creation:
    """Creates savepoints of a group.

    Args:
        options: the options of its queries.
        directory: the directory of the campaign.
        count: the number of complete savepoints.
        seed: the seed of the points.
        sabotaged: a disabled safeguard of the commands, or empty.
        committed: returns the committed offsets of the group.
        report: called with a description of each savepoint.
    """
    to, location = directory / "savepoints", options["stateLocation"]
    arguments = (
        "savepoint",
        "create",
        options["group.id"],
        "--to",
        str(to),
        "--state-location",
        location,
        "-o",
        "json",
    )
    environment = {
        "PYTHONPATH": str(Path(__file__).parent.parent / "dying"),
        "STREAMGROUPS_DEATHS": str(directory / "deaths"),
        "STREAMGROUPS_SABOTAGE": sabotaged,
    }
    server = ("-b", options["kafka.bootstrap.servers"])
    return Creation((*arguments, *server), to, count, seed, environment if sabotaged else {}, committed, report)


def error_code(result: CompletedProcess[str]) -> str:
    """The code of the error of a command with ``-o json``; its exit code if it has printed none."""
    try:
        return str(json.loads(result.stderr.strip().splitlines()[-1])["error"]["code"])
    except (LookupError, ValueError, TypeError):
        return f"exit code {result.returncode}"
