"""Prints the content of a Kafka image: the release, its jars and its command line tools, one per line.

Run by ``build-local-image.sh`` as ``python describe.py [version]``. The jars are those of the embedded broker, which
downloads missing ones to the user's cache. Lines are ``version <release>``, ``jar <path>``, ``tool <name> <main
class>``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from streamgroups_broker._ivy import release_jars
from streamgroups_broker._java import find_java
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION
from streamgroups_broker._tools import TOOLS


def describe(version: str) -> Iterator[str]:
    """The lines for one Kafka release.

    Args:
        version: the release, such as ``4.1.2``.

    Raises:
        EmbeddedBrokerError: if the jars are not in the cache and the download failed.
    """
    found = release_jars(version, find_java)
    yield f"version {found.version}"
    for name in found.jars:
        yield f"jar {Path(found.directory, name)}"
    for tool, main_class in sorted(TOOLS.items()):
        yield f"tool {tool} {main_class}"


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else DEFAULT_KAFKA_VERSION
    sys.stdout.writelines(f"{line}\n" for line in describe(chosen))
