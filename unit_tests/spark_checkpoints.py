"""Checkpoints that Spark has written, for tests, and checkpoints of the same form with any content.

``golden/spark_checkpoints`` has a checkpoint for versions of Spark and kinds of state stores: windows over a source of files,
with 2 partitions, in the last six batches of a query over 8 files. Earlier ones were deleted, as Spark's retention does. ``ids`` has
state files with unique ids. ``compressed`` has the last seven batches of such queries with other codecs of the state files.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "spark_checkpoints"
NAMES = sorted(it.stem for it in GOLDEN.glob("*.zip"))
#: Long before the time of the tests: the query no longer runs.
_OLD_S = 1_700_000_000


def golden(name: str, directory: Path) -> Path:
    """Unpacks a checkpoint, and returns its directory."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(directory)
    return aged(directory)


def batches(directory: Path) -> list[int]:
    """Returns the numbers of the batches of a checkpoint, in order."""
    return sorted(int(it.name) for it in (directory / "offsets").iterdir())


def aged(directory: Path) -> Path:
    """Sets old times of all files, as of a query that has stopped long ago."""
    for path in directory.rglob("*"):
        os.utime(path, (_OLD_S, _OLD_S))
    return directory


def content(directory: Path) -> dict[str, bytes]:
    """Returns the content of all files by their paths in the directory."""
    return {str(it.relative_to(directory)): it.read_bytes() for it in sorted(directory.rglob("*")) if it.is_file()}


def write(directory: Path, files: Mapping[str, str]) -> Path:
    """Writes a checkpoint, and returns its directory."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return aged(directory)


def stateless(batches: Mapping[int, str], *, committed: int, time_ms: int = 1_000) -> dict[str, str]:
    """Returns the files of a checkpoint of a query without state.

    Args:
        batches: the lines of the sources of each batch.
        committed: the last committed batch.
        time_ms: when the first batch was planned.
    """
    files = {"metadata": '{"id":"250e5eb1-1465-4d3c-804d-df4f606787e6"}'}
    for n, lines in batches.items():
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": time_ms + n, "conf": {}}
        files[f"offsets/{n}"] = f"v1\n{json.dumps(metadata)}\n{lines}"
        if n <= committed:
            files[f"commits/{n}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    return files
