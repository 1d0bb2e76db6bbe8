"""The names of state files.

Used by all modules of this folder, and in the metadata of committed offsets, which name the state of a position. No two
attempts of a task have the same name, so that a killed or slow attempt never replaces a file of another one. Names sort
by the time at which the batch was planned. Source: SEMANTICS S10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamgroups.json_values import MAX_INT64, MAX_TIME_MS

_FORM = re.compile(
    r"(?P<planned>[0-9]{13,16})-(?P<run>[0-9a-f]{12})-(?P<batch>[0-9]{1,19})-(?P<attempt>[0-9]{1,19})"
    r"(?:-(?P<task>[1-9][0-9]{0,8}))?(?P<apart>-apart)?\.state",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class StateFileName:
    """The name of a state file: one attempt of one task writes it.

    Args:
        planned_ms: when the batch was planned, in milliseconds since the epoch, by the clock of the driver.
        run_id: the id of the run of the query: 12 hexadecimal digits.
        batch: the number of the batch in its query.
        attempt: Spark's id of the attempt of the task, unique in a Spark application.
        is_apart: whether the file has only rows that the states of another file of the attempt need.
        task: the number of the task in its batch, as the driver has planned it. After a ``coalesce`` one task of Spark
            runs several of them, with one attempt.

    >>> str(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42))
    '1732334879123-1f3a9c2b7d10-17-42.state'
    >>> str(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42, task=3))
    '1732334879123-1f3a9c2b7d10-17-42-3.state'
    """

    planned_ms: int
    run_id: str
    batch: int
    attempt: int
    is_apart: bool = False
    task: int = 0

    def __str__(self) -> str:
        task, apart = f"-{self.task}" if self.task else "", "-apart" if self.is_apart else ""
        return f"{self.planned_ms:013d}-{self.run_id}-{self.batch}-{self.attempt}{task}{apart}.state"

    @classmethod
    def parse(cls, text: str) -> StateFileName:
        """Parses a name.

        Raises:
            ValueError: if it is not the name of a state file.

        >>> StateFileName.parse("1732334879123-1f3a9c2b7d10-17-42.state").batch
        17
        >>> StateFileName.parse("1732334879123-1f3a9c2b7d10-17-42-apart.state").is_apart
        True
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:100]!r} is not the name of a state file")
        numbers = int(found["batch"]), int(found["attempt"])
        name = cls(int(found["planned"]), found["run"], *numbers, found["apart"] is not None, int(found["task"] or 0))
        if name.planned_ms > MAX_TIME_MS or max(name.batch, name.attempt) > MAX_INT64 or str(name) != text:
            raise ValueError(f"{text[:100]!r} is not the name of a state file")
        return name
