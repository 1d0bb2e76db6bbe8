"""PostgreSQL's JDBC driver for the peer that writes with Spark's own ``jdbc`` format. It is downloaded once from a
Maven repository.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.rounds import NotHere
from streamgroups.errors import StreamGroupsError
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly
from streamgroups_broker._java import find_java

_VERSION = "42.7.7"


@cache
def jdbc_driver() -> Path:
    """The jar of the driver.

    Raises:
        NotHere: if it is unavailable.
    """
    try:
        java = find_java()
        jars = cached_jars(
            f"postgresql-jdbc-{_VERSION}",
            _VERSION,
            lambda directory, _: fetch_exactly(directory, (f"org.postgresql:postgresql:{_VERSION}",), java),
        )
    except StreamGroupsError as e:
        raise NotHere(f"PostgreSQL's JDBC driver is not to be had: {e}") from None
    return jars.directory / jars.jars[0]
