"""The output of the queries: the delays by airport and hour, with the updates for flights that landed late.

Collected by ``demo.scenario`` before the broker stops, for ``demo.check`` and ``demo.report``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.flights import AirportHour, Delays


@dataclass(frozen=True, slots=True)
class Output:
    """The rows in the output topic.

    Args:
        rows: the number of rows.
        repeated: the number of rows with the airport, hour and revision of another row.
        by_member: the number of rows that each member emitted.
        delays: the row with the highest revision for each airport and hour.
    """

    rows: int
    repeated: int
    by_member: Mapping[str, int]
    delays: Mapping[AirportHour, Delays]

    @property
    def updates(self) -> int:
        """The number of rows that update an earlier one."""
        return self.rows - self.repeated - len(self.delays)


def collect(values: Iterable[str | bytes]) -> Output:
    """Collects the rows.

    Args:
        values: the values of the records, in any order.

    >>> row = '{"airport": "BOS", "hour": "2013-01-01T10:00:00Z", "flights": 1, "arrived": 0, "revision": 0, "member": "bob"}'
    >>> collect([row]).delays
    {('BOS', '2013-01-01T10:00:00Z'): Delays(flights=1, arrived=0, mean_min=None, worst_min=None)}
    """
    revisions: dict[AirportHour, dict[int, Delays]] = {}
    by_member: Counter[str] = Counter()
    repeated = 0
    for value in values:
        row = json.loads(value)
        known = revisions.setdefault((row["airport"], row["hour"]), {})
        by_member[row["member"]] += 1
        repeated += row["revision"] in known
        # Spark leaves out columns that are null.
        known[row["revision"]] = Delays(row["flights"], row["arrived"], row.get("mean_min"), row.get("worst_min"))
    newest = {at: known[max(known)] for at, known in sorted(revisions.items())}
    return Output(by_member.total(), repeated, dict(sorted(by_member.items())), newest)
