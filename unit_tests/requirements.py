"""Optional requirements of a machine: without them tests are skipped, or fail if the environment requires them.

Called by fixtures and modules of the unit and integration tests. ``STREAMGROUPS_REQUIRE=parity,native`` lists the
required ones, as in ``.ci/run``: a CI run must not skip their tests.
"""

from __future__ import annotations

import os

import pytest

REQUIRE = "STREAMGROUPS_REQUIRE"
#: Spark's own Kafka connector, from a Maven repository; the C extension; Docker and the image of the broker; Prometheus;
#: Docker Compose, a wheel in ``dist`` and the images of ``docker/cluster.yaml``; an API server of Kubernetes.
KNOWN = ("parity", "native", "containers", "prometheus", "cluster", "kubernetes")


def without(what: str, reason: str) -> None:
    """Skips the test, or the module that is being imported, because a requirement is missing.

    Args:
        what: one of :data:`KNOWN`.
        reason: why it is missing.

    Raises:
        ValueError: if the environment requires an unknown name.
    """
    required = [name.strip() for name in os.environ.get(REQUIRE, "").split(",") if name.strip()]
    unknown = sorted({what, *required} - set(KNOWN))
    if unknown:
        raise ValueError(f"{REQUIRE} contains {', '.join(unknown)}; possible are {', '.join(KNOWN)}")
    if what in required:
        pytest.fail(f"{REQUIRE} requires {what}: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
