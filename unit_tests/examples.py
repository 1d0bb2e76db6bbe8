"""How many examples a random test is given: ``make nightly`` multiplies them.

Used wherever a test sets a number of its own; all others follow the profile in ``conftest``.
"""

from __future__ import annotations

import os

#: How many times as many examples as usual.
TIMES = int(os.environ.get("STREAMGROUPS_EXAMPLES", "1"))


def examples(usual: int) -> int:
    """So many examples, or a multiple of it.

    >>> examples(50) == 50 * TIMES
    True
    """
    return usual * TIMES
