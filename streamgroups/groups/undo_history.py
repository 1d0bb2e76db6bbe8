"""The order of the undo files of a user, and what a later command does with an unfinished change.

Called by the commands that change committed offsets. A command can be killed at any step, and a response can be lost. So
its undo file is unfinished until the whole change is confirmed, and the committed offsets show how much of an unfinished
change has taken effect. Source: SEMANTICS O1, O2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

_NAME = re.compile(r"(?P<kind>undo|rest)-(?P<label>.*)-(?P<stamp>\d{8}T\d{9}Z)(?:-(?P<number>\d+))?\.json", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The label of a file of several groups.
_SEVERAL = re.compile(r"\d+-groups")


@dataclass(frozen=True, slots=True, order=True)
class UndoName:
    """The parts of the name of an undo file. A later change has a greater one.

    Args:
        stamp_ms: the time in the name, in milliseconds since the epoch.
        number: the number of the file among those of this time.
        label: the label of its group, or the number of its groups.
    """

    stamp_ms: int
    number: int
    label: str

    def can_list(self, label: str) -> bool:
        """Whether the file can list a group.

        Args:
            label: the label of the group.

        >>> UndoName(0, 0, "board").can_list("board"), UndoName(0, 0, "2-groups").can_list("board")
        (True, True)
        """
        return self.label == label or _SEVERAL.fullmatch(self.label) is not None


def parse_undo_name(name: str) -> UndoName | None:
    """The parts of the name of an undo file; ``None`` for another name.

    >>> parse_undo_name("undo-board-19700101T000001000Z-2.json")
    UndoName(stamp_ms=1000, number=2, label='board')
    >>> parse_undo_name("rest-board-19700101T000001000Z.json")
    """
    found = _NAME.fullmatch(name)
    stamp_ms = None if found is None else _stamp_ms(found["stamp"])
    if found is None or stamp_ms is None or found["kind"] != "undo":
        return None
    return UndoName(stamp_ms, int(found["number"] or 0), found["label"])


def next_stamp_ms(now_ms: int, names: Iterable[str]) -> int:
    """The time for the name of a new file: now, or later than the files that exist.

    The clock of the machine can have been ahead. Then the newest file would not be that of the last change.

    Args:
        now_ms: the time in milliseconds since the epoch.
        names: the names of the files in the directory.

    >>> next_stamp_ms(500, ["undo-board-19700101T000001000Z.json", "notes.txt"]), next_stamp_ms(2_000, [])
    (1001, 2000)
    """
    stamps = [_stamp_ms(found["stamp"]) for name in names if (found := _NAME.fullmatch(name))]
    return max([now_ms, *(stamp + 1 for stamp in stamps if stamp is not None)])


def _stamp_ms(stamp: str) -> int | None:
    try:
        time = datetime.strptime(stamp, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(milliseconds=1)
