"""The remedy for a name that does not exist: the nearest valid one, or all of them.

Called wherever a user names an option, a key, a connection or a step.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest(name: str, known: Collection[str], *, otherwise: str | None = None) -> str:
    """Returns the remedy for a wrong name.

    Args:
        name: the wrong name. Case does not matter.
        known: the valid names.
        otherwise: the remedy if no valid name is similar. ``None``: it lists the valid names.

    >>> nearest("Subscrib", ["subscribe", "connection"]), nearest("x", ["subscribe", "connection"])
    ("Did you mean 'subscribe'?", 'Use one of: connection, subscribe.')
    >>> nearest("x", ["subscribe"], otherwise="See the page.")
    'See the page.'
    """
    names = {it.lower(): it for it in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    if close:
        return f"Did you mean '{names[close[0]]}'?"
    return f"Use one of: {', '.join(sorted(known))}." if otherwise is None else otherwise
