"""Contestants in turn: A B A B, so that all run on the same machine in the same minute.

Called by ``bench.Bench``. The clock is an argument, so tests do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.figures import Missing

T = TypeVar("T")


class NotHere(Exception):
    """A peer is not available on this machine, which is not a failure. The message has the reason."""


class WrongCount(Exception):
    """A reader returned another number of records than the topic contains."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number of turns of each contestant.

    Args:
        counted: the measured rounds.
        warm_up: the rounds before them, which start processes and compile code.
        budget_s: the time after which no further round begins, if one was measured.
        slow_s: a contestant with a longer first run has no second one, and its first run is measured.
    """

    counted: int
    warm_up: int = 1
    budget_s: float = 120
    slow_s: float = 45


def interleave(
    contestants: Mapping[str, Callable[[], T]],
    rounds: Rounds,
    now_s: Callable[[], float],
    report_step: Callable[[str], None] = lambda _: None,
) -> dict[str, list[T] | Missing]:
    """Runs the contestants in turn. A failed contestant is removed; the others continue.

    Args:
        contestants: the measurement of each contestant in a round.
        rounds: the numbers of rounds.
        now_s: the clock, in seconds.
        report_step: called with a description of the next turn.

    Returns:
        the results of each contestant in the measured rounds, or the reason of missing ones.

    >>> ticks = iter(range(100))
    >>> interleave({"a": lambda: 1, "b": lambda: 1 / 0}, Rounds(2), lambda: next(ticks))
    {'a': [1, 1], 'b': Missing(why='b: ZeroDivisionError: division by zero', is_failure=True)}
    """
    found: dict[str, list[T]] = {name: [] for name in contestants}
    missing: dict[str, Missing] = {}
    finished: set[str] = set()
    began_s = now_s()
    for turn in range(rounds.warm_up + rounds.counted):
        if turn > rounds.warm_up and now_s() - began_s > rounds.budget_s:
            break
        for name, run in contestants.items():
            if name in missing or name in finished:
                continue
            report_step(f"{name}, {'warming up' if turn < rounds.warm_up else f'round {turn - rounds.warm_up + 1}'}")
            started_s = now_s()
            try:
                result = run()
            except NotHere as e:
                missing[name] = Missing(f"{name}: {e}", is_failure=False)
                continue
            except Exception as e:
                missing[name] = Missing(f"{name}: {in_short(e)}")
                continue
            slow = turn == 0 and now_s() - started_s > rounds.slow_s
            if slow:
                finished.add(name)
            if slow or turn >= rounds.warm_up:
                found[name].append(result)
    return {name: missing.get(name, results) for name, results in found.items()}


def in_short(error: BaseException) -> str:
    """An error in one line. Spark's errors contain the stacks of two languages, with the cause at the end.

    >>> in_short(ValueError("no such topic\\nat java.base"))
    'ValueError: no such topic'
    >>> in_short(OSError("An error occurred while calling o5.save.\\n: Job aborted\\nCaused by: A: b\\n\\tat x\\nCaused by: C: d"))
    'OSError: C: d'
    """
    lines = str(error).strip().splitlines() or [""]
    causes = [line.partition(":")[2].strip() for line in lines if line.startswith("Caused by:")]
    return f"{type(error).__name__}: {causes[-1] if causes else lines[0]}"[:300]
