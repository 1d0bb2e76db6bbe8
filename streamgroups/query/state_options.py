"""Parses the options about the states of operators, such as ``stateLocation``.

Called by ``streamgroups_spark.source.source_options``. Source: SEMANTICS S10, C4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.added_partitions import OnAddedPartitions
from streamgroups.location_uris import check_location
from streamgroups.option_values import choice
from streamgroups.state.state_lookup import OnMissingState

STATE_OPTIONS = ("stateLocation", "stateRetention", "onMissingState", "onAddedPartitions")
_DEFAULT_RETENTION_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The options about states.

    Args:
        location: where state files are; ``None``: beside the checkpoint.
        retention_ms: how far back a reset keeps its state.
        on_missing: what happens if no state leads to a position.
        on_added_partitions: what happens if a topic gets more partitions.
    """

    location: str | None = None
    retention_ms: int = _DEFAULT_RETENTION_MS
    on_missing: OnMissingState = OnMissingState.FAIL
    on_added_partitions: OnAddedPartitions = OnAddedPartitions.FAIL


def state_options(known: Mapping[str, str]) -> StateOptions:
    """Parses the options.

    Args:
        known: options under their canonical names.

    Raises:
        InvalidOption: for the first invalid option.

    >>> state_options({"stateRetention": "2 hours", "onMissingState": "empty"})
    StateOptions(location=None, retention_ms=7200000, on_missing=<OnMissingState.EMPTY: 'empty'>, \
on_added_partitions=<OnAddedPartitions.FAIL: 'fail'>)
    """
    location, retention = known.get("stateLocation"), known.get("stateRetention")
    if location is not None and not location.strip():
        raise InvalidOption(
            "Option 'stateLocation' is empty.",
            remedy="Set it to a path or URI that all queries of the group can use, or leave it out.",
        )
    if location is not None:
        check_location(location, "Option 'stateLocation'")
    retention_ms = _DEFAULT_RETENTION_MS if retention is None else parse_duration_ms(retention, option="stateRetention")
    on_missing = choice(known, "onMissingState", OnMissingState, OnMissingState.FAIL)
    on_added = choice(known, "onAddedPartitions", OnAddedPartitions, OnAddedPartitions.FAIL)
    return StateOptions(location, retention_ms, on_missing, on_added)


def default_location(checkpoint: str) -> str:
    """The location beside a checkpoint: queries of a group whose checkpoints are in one directory share it.

    >>> default_location("file:/data/checkpoints/board"), default_location("s3a://bucket/board/")
    ('file:/data/checkpoints/streamgroups-state', 's3a://bucket/streamgroups-state')
    """
    parent, slash, _ = checkpoint.rstrip("/").rpartition("/")
    return f"{parent}{slash}streamgroups-state"
