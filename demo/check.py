"""The verification at the end of the demo: missing flights, duplicates and their reason, and partitions with two
owners.

Called by ``demo.__main__`` with the output of the queries, the histories of the members and the offsets of the broker.
Source: SEMANTICS G11, G12, S1. Joins and leaves lose and repeat no record; a kill repeats at most the batch in flight
of the killed member.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.flights import Delays
from streamgroups.groups.audit import Uncommitted, overlaps, ownership_epochs, uncommitted
from streamgroups.groups.history import Event
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    good: bool
    text: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """The output of the queries.

    Args:
        times: how often each flight arrived, by partition and offset.
        by_member: the number of flights that each member wrote.
        delays: by carrier, with each flight counted once.
    """

    times: Counter[tuple[int, int]]
    by_member: Mapping[str, int]
    delays: Mapping[str, Delays]

    @property
    def twice(self) -> set[tuple[int, int]]:
        """The flights that arrived more than once."""
        return {flight for flight, times in self.times.items() if times > 1}


def read_output(folder: Path) -> Arrived:
    """Reads the files of all queries."""
    times: Counter[tuple[int, int]] = Counter()
    by_member: Counter[str] = Counter()
    delays: defaultdict[str, Delays] = defaultdict(Delays)
    for path in sorted(folder.glob("*.json")):
        batch = json.loads(path.read_text())
        by_member[path.stem.rsplit("-", 1)[0]] += len(batch["offset"])
        columns = (batch[name] for name in ("partition", "offset", "carrier", "dep_delay", "arr_delay"))
        for partition, offset, carrier, departure_min, arrival_min in zip(*columns, strict=True):
            times[partition, offset] += 1
            if times[partition, offset] == 1:
                delays[carrier] = delays[carrier].add(departure_min, arrival_min)
    return Arrived(times, dict(by_member), dict(sorted(delays.items())))


def check(
    arrived: Arrived,
    events: Sequence[Event],
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    *,
    killed: str,
    expected: Mapping[str, Delays],
) -> list[CheckResult]:
    """Runs all checks.

    Args:
        arrived: the output of the queries.
        events: the histories of the members.
        ends: the topic's end offsets.
        committed: the group's offsets.
        killed: the member that was killed.
        expected: the delays by carrier, from the data set itself.
    """
    there = {(tp.partition, offset) for tp, end in ends.items() for offset in range(end)}
    missing, unknown = there - arrived.times.keys(), arrived.times.keys() - there
    total = sum(flights.flights for flights in expected.values())
    owned_twice, left = overlaps(ownership_epochs(events)), uncommitted(events)
    return [
        CheckResult(len(there) == total, f"the topic contains {len(there):,} flights, the data set {total:,}"),
        CheckResult(
            not missing and not unknown,
            f"{len(there) - len(missing):,} of {len(there):,} flights arrived, {len(missing):,} are missing"
            + (f"; {len(unknown):,} are not in the topic" if unknown else ""),
        ),
        _repeats(arrived, [found.offsets for found in left if found.member == killed], killed),
        _handovers([found for found in left if found.ended == "released"]),
        _committed(ends, committed),
        CheckResult(
            not owned_twice,
            "every partition had at most one owner at any time"
            if not owned_twice
            else f"two members owned {owned_twice[0][0].topic_partition} at the same time ({len(owned_twice)} cases)",
        ),
        _delays(arrived.delays, expected),
    ]


def _repeats(arrived: Arrived, in_flight: Sequence[OffsetRange], killed: str) -> CheckResult:
    """Checks that only the batch in flight of the killed member arrived twice."""
    allowed = {
        (r.topic_partition.partition, offset) for r in in_flight for offset in range(r.next_offset, r.end_offset)
    }
    twice = arrived.twice
    text = f"{len(twice):,} flights arrived twice"
    if twice - allowed:
        return CheckResult(False, f"{text}, {len(twice - allowed):,} of them were not in flight at {killed}")
    if any(times > 2 for times in arrived.times.values()):
        return CheckResult(False, f"{text}, some of them more often")
    return CheckResult(True, f"{text}, all of them in flight at {killed} when it was killed" if twice else text)


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


def _delays(found: Mapping[str, Delays], expected: Mapping[str, Delays]) -> CheckResult:
    wrong = sorted(carrier for carrier in found.keys() | expected.keys() if found.get(carrier) != expected.get(carrier))
    if wrong:
        return CheckResult(False, f"the delays differ from what pandas computes from the data set: {', '.join(wrong)}")
    return CheckResult(True, "the delays by carrier are those that pandas computes from the data set")
