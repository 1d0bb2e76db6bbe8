"""The output of a group in a savepoint: the positions of its ledger, and the version of its table.

Created by ``sg.savepoints`` with ``sink=``, and shown and checked by ``restore``. A savepoint copies no output. If the table
returns to the recorded version, its rows are those of the recorded positions. Source: SEMANTICS C3, X2; Delta's RESTORE, which
keeps the transaction identifiers, so the ledger in the table does not return with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.json_values import elements, items, string, whole, whole_or_none
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """The output of a group when its savepoint was created.

    Args:
        name: the output as ``kind:name``, without secrets.
        positions: the offset after the last record whose output is in it, by partition.
        table_version: the version of a Delta table with these positions; ``None`` for other outputs.

    >>> record = OutputRecord("delta:/data/board", {TopicPartition("flights", 0): 20}, 7)
    >>> decode_output(encode_output(record)) == record
    True
    """

    name: str
    positions: Mapping[TopicPartition, int]
    table_version: int | None = None


def encode_output(record: OutputRecord) -> dict[str, Any]:
    """The fields of an output in the commit record."""
    return {
        "name": record.name,
        "table_version": record.table_version,
        "positions": [
            {"topic": tp.topic, "partition": tp.partition, "next_offset": n}
            for tp, n in sorted(record.positions.items())
        ],
    }


def decode_output(value: Any) -> OutputRecord:
    """Parses the fields of an output.

    Raises:
        ValueError: if they have another form.
        KeyError: if one is missing.
    """
    fields = dict(items(value))
    positions = {}
    for element in elements(fields["positions"]):
        of = dict(items(element))
        positions[TopicPartition(string(of["topic"]), whole(of["partition"]))] = whole(of["next_offset"])
    return OutputRecord(string(fields["name"]), positions, whole_or_none(fields["table_version"]))


def require_own_output(output: OutputRecord, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> None:
    """Rejects a sink whose ledger has no position of the group.

    Args:
        output: the output.
        group_id: the group.
        next_offsets: its committed offsets.

    Raises:
        InvalidOption: if no partition has a position.
    """
    if not output.positions.keys() & next_offsets.keys():
        raise InvalidOption(
            f"The ledger of '{output.name}' has no position of group '{group_id}'; no savepoint was created.",
            remedy="Pass the sink of its queries, or omit the sink.",
        )


def ahead(output: OutputRecord, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The number of offsets after a savepoint whose output the recorded output contains already, by partition.

    Args:
        output: the output.
        next_offsets: the offsets of the savepoint.

    >>> p0 = TopicPartition("flights", 0)
    >>> ahead(OutputRecord("delta:/data/board", {p0: 25}), {p0: 20})
    {TopicPartition(topic='flights', partition=0): 5}
    """
    return {tp: n - next_offsets[tp] for tp, n in sorted(output.positions.items()) if n > next_offsets.get(tp, n)}


def behind(output: OutputRecord, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The number of offsets before a savepoint whose output the recorded output does not contain, by partition.

    >>> p0 = TopicPartition("flights", 0)
    >>> behind(OutputRecord("delta:/data/board", {p0: 25}), {p0: 30})
    {TopicPartition(topic='flights', partition=0): 5}
    """
    return {tp: next_offsets[tp] - n for tp, n in sorted(output.positions.items()) if n < next_offsets.get(tp, n)}


def output_effects(output: OutputRecord, next_offsets: Mapping[TopicPartition, int]) -> list[str]:
    """The effects of a restore in place on the output, as sentences.

    Args:
        output: the output of the savepoint.
        next_offsets: the offsets of the savepoint.

    >>> p0 = TopicPartition("flights", 0)
    >>> for effect in output_effects(OutputRecord("delta:/data/board", {p0: 25}, 7), {p0: 20}):
    ...     print(effect)
    To remove the output after the savepoint, restore version 7 of 'delta:/data/board' before its queries start.
    The ledger of 'delta:/data/board' and the savepoint disagree: it had the output of 5 more offsets (flights-0: 25 \
instead of 20). The group writes it again: write by key, or remove it.
    """
    found = []
    if output.table_version is not None:
        found.append(
            f"To remove the output after the savepoint, restore version {output.table_version} of '{output.name}' before its "
            "queries start."
        )
    more, less = ahead(output, next_offsets), behind(output, next_offsets)
    if more:
        found.append(
            f"The ledger of '{output.name}' and the savepoint disagree: it had the output of {sum(more.values())} more offsets "
            f"({_compared(more, output, next_offsets)}). The group writes it again: write by key, or remove it."
        )
    if less:
        found.append(
            f"The ledger of '{output.name}' and the savepoint disagree: it had the output of {sum(less.values())} fewer offsets "
            f"({_compared(less, output, next_offsets)}). The group does not write it: reset the group to the ledger after "
            "the restore, or accept that it is missing."
        )
    return found


def require_output(
    saved: OutputRecord | None, current: OutputRecord, next_offsets: Mapping[TopicPartition, int]
) -> None:
    """Rejects a restore in place if the current output lacks rows that the savepoint expects.

    Args:
        saved: the output of the savepoint; ``None`` if it was created without a sink.
        current: the output now.
        next_offsets: the offsets of the savepoint.

    Raises:
        GroupRejected: with the remedy. Nothing was changed.
    """
    if saved is not None and saved.name != current.name:
        raise GroupRejected(
            f"The savepoint has the output '{saved.name}', and the sink is '{current.name}'; nothing was changed.",
            remedy="Pass the sink of the savepoint, or omit the sink.",
        )
    version = None if saved is None else saved.table_version
    known = {} if saved is None else behind(saved, next_offsets)
    less = {tp: n for tp, n in behind(current, next_offsets).items() if n > known.get(tp, 0)}
    is_older = version is not None and current.table_version is not None and current.table_version < version
    if not less and not is_older:
        return
    why = (
        f"the output of {sum(less.values())} offsets before the savepoint is missing "
        f"({_compared(less, current, next_offsets)})"
        if less
        else f"its version is {current.table_version}, and that of the savepoint is {version}"
    )
    back = "Restore a copy of the output of the savepoint or of a later time"
    raise GroupRejected(
        f"The ledger of '{current.name}' and the savepoint disagree: {why}. Nothing was changed.",
        remedy=back if version is None else f"{back}: version {version} of the table, or a later one",
    )


def _compared(
    differences: Mapping[TopicPartition, int], output: OutputRecord, next_offsets: Mapping[TopicPartition, int]
) -> str:
    shown = [f"{tp}: {output.positions[tp]} instead of {next_offsets[tp]}" for tp in list(differences)[:5]]
    return ", ".join(shown) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
