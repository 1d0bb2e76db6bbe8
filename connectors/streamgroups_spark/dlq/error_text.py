"""Describes an error of a user's function: its class, its message without secrets, and its place in the code.

Called for each failed record by ``dlq.safe_stage``. A letter is stored and shown, so its texts have a maximum
length, and no control characters. Source: SEMANTICS P4.
"""

from __future__ import annotations

import sysconfig
from pathlib import PurePath
from traceback import walk_tb

from streamgroups.printable import printable
from streamgroups_kafka.client.jaas import redacted

MAX_CHARACTERS = 1_000
#: Of a longer text, only the beginning is searched for secrets.
_MAX_READ = 10 * MAX_CHARACTERS
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def text_of(error: BaseException) -> str:
    """Returns the message of an error on one line: without secrets, and at most 1,000 characters.

    >>> text_of(ValueError("no login:\\npassword=hunter2"))
    'no login:\\\\x0apassword=***'
    """
    try:
        text = str(error)
    except Exception:
        # The error is of a class of the user.
        text = ""
    return shortened(printable(redacted(text[:_MAX_READ], ())))


def shortened(text: str, most: int = MAX_CHARACTERS) -> str:
    """Returns the beginning of a text, with three dots if the rest is missing.

    >>> shortened("abcdef", 5)
    'ab...'
    """
    return text if len(text) <= most else text[: most - 3] + "..."


def place_of(error: BaseException, caller: str) -> str | None:
    """Returns file, line and function where the code of the user has raised an error.

    Args:
        error: the error.
        caller: the file that calls the function of the user.

    Returns:
        The last place that is in no library. ``None`` if no function of the user was running.
    """
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    last = max((i for i, (code, _) in enumerate(frames) if code.co_filename == caller), default=-1)
    called = [it for it in frames[last + 1 :] if not it[0].co_filename.endswith((".pxi", ".pyx"))]
    own = [it for it in called if not it[0].co_filename.startswith(_LIBRARIES)]
    if not own:
        return None
    code, line = own[-1]
    return f"{PurePath(code.co_filename).name}:{line} in {code.co_name}"
