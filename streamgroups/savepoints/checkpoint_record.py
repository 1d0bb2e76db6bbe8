"""The copy of a Spark checkpoint in a savepoint, at the batch whose end the group has committed.

Created and restored by :mod:`streamgroups_admin.savepoints.checkpoint_parts`. An exclusive query with Spark's own state has this
state in its checkpoint. Source: SEMANTICS C3, C5; ``MicroBatchExecution``, which informs a source after the commit of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroups.json_values import elements, items, string, whole
from streamgroups.partitions import TopicPartition

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copied checkpoint.

    Args:
        path: its path below the checkpoint.
        n_bytes: its size.
        sha256: its checksum, in hexadecimal digits.
    """

    path: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A copy of a checkpoint.

    Args:
        batch_id: its batch, which is its last one.
        files: all files.

    >>> record = CheckpointRecord(7, (CopiedFile("commits/7", 29, "0" * 64),))
    >>> decode_checkpoint(encode_checkpoint(record)) == record
    True
    """

    batch_id: int
    files: tuple[CopiedFile, ...]

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        return sum(it.n_bytes for it in self.files)


def encode_checkpoint(record: CheckpointRecord) -> dict[str, Any]:
    """The fields of a checkpoint in the commit record."""
    files = [{"path": it.path, "bytes": it.n_bytes, "sha256": it.sha256} for it in record.files]
    return {"batch": record.batch_id, "files": files}


def decode_checkpoint(value: Any) -> CheckpointRecord:
    """Parses the fields of a checkpoint.

    Raises:
        ValueError: if they have another form, or a path leads out of the checkpoint.
        KeyError: if one is missing.
    """
    fields = dict(items(value))
    return CheckpointRecord(whole(fields["batch"]), tuple(map(_file, elements(fields["files"]))))


def _file(value: Any) -> CopiedFile:
    fields = dict(items(value))
    path, sha256 = string(fields["path"]), string(fields["sha256"])
    if any(name in ("", ".", "..") for name in path.split("/")):
        raise ValueError(f"{path[:100]!r} is not a path below a checkpoint")
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256[:100]!r} is not a checksum")
    return CopiedFile(path, whole(fields["bytes"]), sha256)


class Fit(Enum):
    """The end of a batch, compared with the committed offsets of the group."""

    #: The batch ends at the committed offsets.
    HERE = "here"
    #: It ends after one of them, so an earlier batch can fit.
    LATER = "later"
    #: It ends before one of them, so no earlier batch fits.
    EARLIER = "earlier"
    #: It does not have all partitions.
    OTHER = "other"


def fit(ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> Fit:
    """Compares the end of a batch with the committed offsets of the group.

    Args:
        ends: the offset after the last record of each partition in the batch.
        committed: the committed offsets.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> [fit({p0: n, p1: 3}, {p0: 5, p1: 3}).value for n in (4, 5, 6)]
    ['earlier', 'here', 'later']
    >>> fit({p0: 5}, {p0: 5, p1: 3}).value
    'other'
    """
    if committed.keys() - ends.keys():
        return Fit.OTHER
    if any(ends[tp] < n for tp, n in committed.items()):
        return Fit.EARLIER
    # A partition without a committed offset had no records up to this batch.
    return Fit.HERE if all(ends[tp] == n for tp, n in committed.items()) else Fit.LATER
