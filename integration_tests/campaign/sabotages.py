"""Replacements that disable one protection of the tested code. ``dying/sitecustomize.py`` wraps functions with them in the processes
of a query, if ``STREAMGROUPS_SABOTAGE`` names the protection. ``campaign.controls`` has the anomaly that each must leave.

A replacement changes as little as possible: the query continues, and only the anomaly shows that something is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_Function = Callable[..., Any]
#: How many records a skipped range has.
SKIPPED = 7
#: The header of a state file, which has the checksum of the rest.
_HEADER_BYTES = 64


def reversed_rows(write: _Function) -> _Function:
    """A task writes the rows of each batch of records in reverse order."""

    def written(self: Any, records: Any, context: Any) -> Any:
        return write(self, map(_reversed, records), context)

    return written


def _reversed(records: Any) -> Any:
    import pyarrow as pa

    return records.take(pa.array(range(records.num_rows - 1, -1, -1), pa.int64()))


def without_a_range(available: _Function) -> _Function:
    """About every third plan of a partition skips some records, and records no gap."""

    def found(self: Any, member: Any, stopped: Any) -> Any:
        from streamgroups.groups.membership import NewPosition

        offsets = available(self, member, stopped)
        owned = member.membership.owned
        skipping = {
            tp: NewPosition(n + SKIPPED, owned[tp].epoch, owned[tp].identity)
            for tp, (n, end) in offsets.items()
            if tp in owned and n > 0 and n // 100 % 3 == 2 and end > n + 2 * SKIPPED
        }
        moved = member.move(skipping, detail="") if skipping else ()
        return {tp: (n + SKIPPED if tp in moved else n, end) for tp, (n, end) in offsets.items()}

    return found


def without_a_partition(available: _Function) -> _Function:
    """No plan contains the first partition of a topic."""

    def found(self: Any, member: Any, stopped: Any) -> Any:
        return {tp: it for tp, it in available(self, member, stopped).items() if tp.partition}

    return found


def committed_early(get: _Function) -> _Function:
    """A request of an instance commits the messages that it returns."""

    def got(self: Any, cursor: Any, limit: int) -> Any:
        messages, after = get(self, cursor, limit)
        self._member.commit(after.pending)
        return messages, after

    return got


def committed_instead(_: _Function) -> _Function:
    """A transaction is committed instead of aborted, without offsets of the group."""
    return lambda transactions, transaction: transactions.commit(transaction)


def with_a_changed_segment(pack: _Function) -> _Function:
    """A state file is changed behind its checksum: one bit of a count in its first segment."""

    def packed(manifest: str, schema: Any, segments: Any) -> memoryview:
        whole = pack(manifest, schema, segments)
        changed = pack(manifest, schema, [*map(_changed, segments[:1]), *segments[1:]])
        return memoryview(bytes(whole[:_HEADER_BYTES]) + bytes(changed[_HEADER_BYTES:]))

    return packed


def _changed(segment: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "p0" not in segment.schema.names or segment.schema.field("p0").type != pa.int64() or not segment.num_rows:
        return segment
    counts = segment.column("p0")
    new = pa.concat_arrays([pc.bit_wise_xor(counts.slice(0, 1), pa.scalar(1, pa.int64())), counts.slice(1)])
    i = segment.schema.get_field_index("p0")
    return segment.set_column(i, segment.schema.field(i), new)


def unchecked(_: _Function) -> _Function:
    """A checksum is not compared."""
    return lambda found, n_bytes, crc32: None


def without_a_producer_id(_: _Function) -> _Function:
    """Record batches have no producer id and no sequence number."""
    return lambda self: None


def without_sequences(_: _Function) -> _Function:
    """A task counts no sequence numbers."""

    def advance(self: Any, topic: str, batches: Any, rejected: Any) -> None:
        self._next_sequences[topic].update(dict.fromkeys((it.partition for it in batches), 0))

    return advance


def with_a_lost_response(send: _Function) -> _Function:
    """The first response to a writer is lost, so it sends its request again."""

    def sent(self: Any, pending: Mapping[Any, Any], found: Any) -> None:
        if not getattr(self, "has_lost_a_response", False):
            self.has_lost_a_response = True
            send(self, {tp: deque(batches) for tp, batches in pending.items()}, [])
        send(self, pending, found)

    return sent


def never_decided(_: _Function) -> _Function:
    """A batch that is in flight for longer than its lease keeps its partitions."""
    return lambda self, number, lease: None


def not_redacted(_: _Function) -> _Function:
    """An error is logged as it is."""
    return lambda text, secrets, names=(): text
