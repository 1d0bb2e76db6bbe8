"""Counts how often the sink of a query reads the checkpoint, in all of Spark's Python processes.

Used by ``test_trips_of_a_batch``. Spark pickles the source by value with the function of :func:`counting_source`, so each
process that creates a writer counts its own reads. The tested code has no dependency on this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamgroups_operators.locations import open_location
from streamgroups_spark.bridge import checkpoint_log
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals.pickle_checks import shipped_class
from streamgroups_spark.session import SESSION


class _Files:
    """A file system that writes the name of each read into a file."""

    def __init__(self, files: Any, counts: str) -> None:
        self._files, self._counts = files, counts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(what: Any) -> Any:
            path = getattr(what, "base_dir", what)
            # Processes of several tasks write at the same time, and a short line is written as a whole.
            with open(self._counts, "a") as counts:
                counts.write(f"{os.getpid()} {name} {path}\n")
            return getattr(self._files, name)(what)

        return call


def counting_source(counts: Path) -> Any:
    """Returns the data source ``streamgroups`` of this session, whose writers count.

    Args:
        counts: a file with one line for each read.
    """
    place = str(counts)

    def stream_writer(self: StreamGroupsDataSource, schema: Any, overwrite: bool) -> Any:
        vars(checkpoint_log)["open_location"] = lambda location: _counted(location, place)
        return StreamGroupsDataSource.streamWriter(self, schema, overwrite)

    return shipped_class(StreamGroupsDataSource, {"session": SESSION, "parallelism": 2, "streamWriter": stream_writer})


def _counted(location: str, counts: str) -> tuple[Any, str]:
    files, path = open_location(location)
    return _Files(files, counts), path
