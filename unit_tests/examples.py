"""The number of examples of random tests, which ``make nightly`` multiplies.

Used by tests with a specific number; all other tests use the profile in ``conftest``.
"""

from __future__ import annotations

import os

#: The factor for the usual number of examples.
TIMES = int(os.environ.get("STREAMGROUPS_EXAMPLES", "1"))


def examples(usual: int) -> int:
    """This number of examples, multiplied by the factor of the run.

    >>> examples(50) == 50 * TIMES
    True
    """
    return usual * TIMES
