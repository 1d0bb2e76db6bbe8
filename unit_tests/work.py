"""Measures the work of a call, so that a test can compare an input with a longer one. Only :func:`duration_ratio` reads a clock.

Used by the tests of parsers and of steps whose input an untrusted client chooses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_RUNS = 5


def work_of(call: Callable[[], object]) -> int:
    """Returns how many lines of Python and calls of functions in C a call runs.

    >>> once, twice = (work_of(lambda: [sorted([i]) for i in range(n)]) for n in (100, 200))
    >>> 1.5 < twice / once < 2.5
    True
    """
    count = 0

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event in ("line", "call")
        return on_line

    def on_call(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "c_call"

    traced, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        call()
    finally:
        sys.settrace(traced)
        sys.setprofile(profiled)
    return count


def duration_ratio(call: Callable[[str], object], text: Callable[[int], str], length: int, enough: float) -> float:
    """Returns how many times as long a call takes for a text of four times the length. For calls whose work is in C.

    It compares the shortest durations of several runs in this thread, so that the load of the machine has no effect. It ends
    when the ratio is small enough.

    Args:
        call: what is measured.
        text: the text of a length.
        length: the shorter length.
        enough: a ratio that needs no more runs.

    >>> duration_ratio(str.upper, lambda length: "a" * length, 500_000, enough=12) < 12
    True
    >>> import re
    >>> duration_ratio(re.compile("a*b").findall, lambda length: "a" * length, 1_000, enough=12) > 12
    True
    """
    texts = text(length), text(4 * length)
    shortest = [float("inf"), float("inf")]
    for _ in range(_RUNS):
        for at, it in enumerate(texts):
            begin_s = time.thread_time()
            call(it)
            shortest[at] = min(shortest[at], time.thread_time() - begin_s)
        if shortest[1] <= enough * shortest[0]:
            break
    return shortest[1] / shortest[0]
