"""The number of examples of random tests, which ``make nightly`` multiplies.

Used by tests with a specific number; all other tests use the profile in ``conftest``.
"""

from __future__ import annotations

import os

_GIVEN = os.environ.get("STREAMGROUPS_EXAMPLES", "")
#: The factor for the usual number of examples.
TIMES = int(_GIVEN or "1")


def examples(usual: int) -> int:
    """This number of examples, multiplied by the factor of the run.

    >>> examples(50) == 50 * TIMES
    True
    """
    return usual * TIMES


def sequences(usual: int) -> int:
    """The same for random sequences of steps, which take most of the time: ``make test``, which sets no factor, has a third.

    >>> sequences(60) in (20, 60 * TIMES)
    True
    """
    return usual * TIMES if _GIVEN else -(-usual // 3)
