"""What a machine may lack: the tests of it are skipped there, and fail where it is required.

Called by fixtures and modules of the unit and integration tests. ``STREAMGROUPS_REQUIRE=parity,native`` names what must be there, as
``.ci/run`` does: a run that lost its subject is not green.
"""

from __future__ import annotations

import os

import pytest

REQUIRE = "STREAMGROUPS_REQUIRE"
#: Spark's own Kafka connector, from a Maven repository; the C extension; Docker and the broker's image.
KNOWN = ("parity", "native", "containers")


def without(what: str, reason: str) -> None:
    """Skips the test, or the module that is being imported, because something is missing.

    Args:
        what: one of :data:`KNOWN`.
        reason: why it is missing.

    Raises:
        ValueError: if the environment requires something that is not known.
    """
    required = [name.strip() for name in os.environ.get(REQUIRE, "").split(",") if name.strip()]
    unknown = sorted({what, *required} - set(KNOWN))
    if unknown:
        raise ValueError(f"{REQUIRE} does not know {', '.join(unknown)}; known are {', '.join(KNOWN)}")
    if what in required:
        pytest.fail(f"{REQUIRE} requires {what}: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
