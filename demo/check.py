"""The verification at the end of the demo: flights that are missing or counted twice, windows, and partitions with two
owners.

Called by ``demo.__main__`` with the output of the queries, the histories of the members and the offsets of the broker.
Source: SEMANTICS G11, G12, S1, S10, W9. Joins and leaves lose no record and read none again; after a kill, at most the
batch in flight of the killed member is read again. The state of a partition follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.flights import AirportHour, Delays
from demo.output import Output
from streamgroups.groups.audit import Uncommitted, overlaps, ownership_epochs, read_again, uncommitted
from streamgroups.groups.history import Event
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    good: bool
    text: str


def check(
    output: Output,
    events: Sequence[Event],
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    *,
    killed: str,
    expected: Mapping[AirportHour, Delays],
) -> list[CheckResult]:
    """Runs all checks.

    Args:
        output: the output of the queries.
        events: the histories of the members.
        ends: the topic's end offsets.
        committed: the group's offsets.
        killed: the member that was killed.
        expected: the delays by airport and hour, from the data set itself.
    """
    # The last record of each partition is not a flight.
    there, total = sum(ends.values()) - len(ends), _flights(expected)
    owned_twice, left = overlaps(ownership_epochs(events)), uncommitted(events)
    return [
        CheckResult(there == total, f"the topic contains {there:,} flights, the data set {total:,}"),
        CheckResult(
            _flights(output.delays) == there, f"{_flights(output.delays):,} of {there:,} flights are in a window"
        ),
        _again(events, [found.offsets for found in left if found.member == killed], killed),
        _rows(output),
        _windows(output.delays, expected),
        _handovers([found for found in left if found.ended == "released"]),
        _committed(ends, committed),
        CheckResult(
            not owned_twice,
            "every partition had at most one owner at any time"
            if not owned_twice
            else f"two members owned {owned_twice[0][0].topic_partition} at the same time ({len(owned_twice)} cases)",
        ),
    ]


def _flights(delays: Mapping[AirportHour, Delays]) -> int:
    return sum(it.flights for it in delays.values())


def _again(events: Sequence[Event], in_flight: Sequence[OffsetRange], killed: str) -> CheckResult:
    """Checks that only the batch in flight of the killed member was read again, and once."""
    again = read_again(events)
    text = f"{sum(len(it.offsets) for it in again):,} flights were read again"
    others = [it for it in again if not any(_contains(r, it.offsets) for r in in_flight)]
    if others:
        return CheckResult(False, f"{text}, {others[0].offsets} was not in flight at {killed}")
    if any(len(it.by) > 2 for it in again):
        return CheckResult(False, f"{text}, some of them more than once")
    return CheckResult(True, f"{text}, all of them in flight at {killed} when it was killed" if again else text)


def _contains(outer: OffsetRange, inner: OffsetRange) -> bool:
    return (
        outer.topic_partition == inner.topic_partition
        and outer.next_offset <= inner.next_offset
        and inner.end_offset <= outer.end_offset
    )


def _rows(output: Output) -> CheckResult:
    """Checks that no row is in the output twice, from the batch in flight or from the windows at a handover."""
    updates = f"{output.rows:,} rows of windows; updates for flights that landed late: {output.updates:,}"
    return CheckResult(not output.repeated, f"{updates}; rows that are there twice: {output.repeated:,}")


def _windows(found: Mapping[AirportHour, Delays], expected: Mapping[AirportHour, Delays]) -> CheckResult:
    wrong = sorted(at for at in found.keys() | expected.keys() if found.get(at) != expected.get(at))
    if wrong:
        first = " ".join(wrong[0])
        return CheckResult(
            False,
            f"{len(wrong):,} windows (airport, hour) differ from pandas. The first one is {first}: "
            f"{found.get(wrong[0])}, and by pandas {expected.get(wrong[0])}",
        )
    return CheckResult(True, f"{len(found):,} windows (airport, hour) equal pandas")


def _handovers(broken: Sequence[Uncommitted]) -> CheckResult:
    """Checks that a live owner commits a partition before its handover."""
    if broken:
        return CheckResult(
            False, f"{broken[0].member} handed {broken[0].offsets} over without a commit ({len(broken)} cases)"
        )
    return CheckResult(True, "every handover followed a commit, except for the batch in flight of the killed query")


def _committed(ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> CheckResult:
    behind = [str(tp) for tp, end in sorted(ends.items()) if committed.get(tp, 0) != end]
    return CheckResult(
        not behind, f"not everything is committed: {', '.join(behind)}" if behind else "everything is committed"
    )
