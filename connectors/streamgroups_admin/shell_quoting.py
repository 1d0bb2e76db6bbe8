"""Names quoted for a shell.

The commands about groups use it. Source: the shell of POSIX.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def names(groups: Iterable[str]) -> str:
    """Returns names of groups as the last arguments of a command to paste. A group can have the name ``x; reboot``.

    >>> print(names(["billing", "x; reboot"]))
    billing 'x; reboot'
    >>> print(names(["--execute"]))
    -- --execute
    """
    listed = list(groups)
    return ("-- " if any(name.startswith("-") for name in listed) else "") + shlex.join(listed)
