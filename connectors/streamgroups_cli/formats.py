"""Names as a shell takes them.

Used by the commands about groups. Source: the shell of POSIX.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def names(groups: Iterable[str]) -> str:
    """The names of groups as the last arguments of a command that can be pasted: anybody may call a group ``x; reboot``.

    >>> print(names(["billing", "x; reboot"]))
    billing 'x; reboot'
    >>> print(names(["--execute"]))
    -- --execute
    """
    listed = list(groups)
    return ("-- " if any(name.startswith("-") for name in listed) else "") + shlex.join(listed)
