"""The end of the demo: did every flight arrive, which ones twice and why, and was there ever more than one owner.

Called by ``demo.__main__`` with what the queries wrote, what the members recorded and what the broker says. Source: SEMANTICS
G11, G12, S1: joining and leaving loses and repeats nothing; a kill repeats at most what the killed member had in flight.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.flights import Delays
from streamgroups.groups.audit import Uncommitted, overlaps, tenures, uncommitted
from streamgroups.groups.history import Event
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    good: bool
    text: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """What the queries wrote.

    Args:
        times: how often each flight, by partition and offset, arrived.
        by_member: how many flights each member wrote.
        delays: by carrier, each flight counted once, however often it arrived.
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
) -> list[Finding]:
    """Everything that must hold.

    Args:
        arrived: what the queries wrote.
        events: what the members recorded.
        ends: the topic's end offsets.
        committed: the group's offsets.
        killed: the member that was killed.
        expected: the delays by carrier, from the data set itself.
    """
    there = {(tp.partition, offset) for tp, end in ends.items() for offset in range(end)}
    missing, unknown = there - arrived.times.keys(), arrived.times.keys() - there
    total = sum(flights.flights for flights in expected.values())
    owned_twice, left = overlaps(tenures(events)), uncommitted(events)
    return [
        Finding(len(there) == total, f"the topic holds {len(there):,} flights, the data set {total:,}"),
        Finding(
            not missing and not unknown,
            f"{len(there) - len(missing):,} of {len(there):,} flights arrived, {len(missing):,} are missing"
            + (f"; {len(unknown):,} are not in the topic" if unknown else ""),
        ),
        _repeats(arrived, [found.offsets for found in left if found.member == killed], killed),
        _handovers([found for found in left if found.ended == "released"]),
        _committed(ends, committed),
        Finding(
            not owned_twice,
            "every partition had at most one owner at any time"
            if not owned_twice
            else f"two members owned {owned_twice[0][0].topic_partition} at the same time ({len(owned_twice)} cases)",
        ),
        _delays(arrived.delays, expected),
    ]


def _repeats(arrived: Arrived, in_flight: Sequence[OffsetRange], killed: str) -> Finding:
    """Nothing but what the killed member had in flight may have arrived twice."""
    allowed = {
        (r.topic_partition.partition, offset) for r in in_flight for offset in range(r.next_offset, r.end_offset)
    }
    twice = arrived.twice
    text = f"{len(twice):,} flights arrived twice"
    if twice - allowed:
        return Finding(False, f"{text}, {len(twice - allowed):,} of them were not in flight at {killed}")
    if any(times > 2 for times in arrived.times.values()):
        return Finding(False, f"{text}, some of them more often")
    return Finding(True, f"{text}, all of them in flight at {killed} when it was killed" if twice else text)


def _handovers(broken: Sequence[Uncommitted]) -> Finding:
    """A partition that changes hands while its owner lives is committed first."""
    if broken:
        return Finding(
            False, f"{broken[0].member} handed {broken[0].offsets} over without a commit ({len(broken)} cases)"
        )
    return Finding(
        True, "every partition that changed hands was committed first, but what the killed query had in flight"
    )


def _committed(ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> Finding:
    behind = [str(tp) for tp, end in sorted(ends.items()) if committed.get(tp, 0) != end]
    return Finding(
        not behind, f"not everything is committed: {', '.join(behind)}" if behind else "everything is committed"
    )


def _delays(found: Mapping[str, Delays], expected: Mapping[str, Delays]) -> Finding:
    wrong = sorted(carrier for carrier in found.keys() | expected.keys() if found.get(carrier) != expected.get(carrier))
    if wrong:
        return Finding(False, f"the delays differ from what pandas computes from the data set: {', '.join(wrong)}")
    return Finding(True, "the delays by carrier are those that pandas computes from the data set")
