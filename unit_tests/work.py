"""Counts the work of a call, so that a test can compare an input with one of twice its size. No clock is read.

Used by the tests of parsers and of steps whose input an untrusted client chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


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
