"""The log of a process that runs for a long time: workers, managers and ``processors run``.

It has the lines of this library from level INFO on. Source: Python's "logging"; containers collect standard error.
"""

from __future__ import annotations

import logging

#: The packages of this library with processes.
_PACKAGES = ("streamgroups", "streamgroups_kafka", "streamgroups_spark", "streamgroups_cli")


def log_to_stderr() -> None:
    """Writes the log to standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    for package in _PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO)
