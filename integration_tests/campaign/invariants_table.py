"""The table of faults and invariants in the record of campaigns. Used by ``campaign.record``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from integration_tests.history.anomalies import INVARIANTS

#: The column of faults in campaigns that do not store the decisions.
NOT_STORED = "not stored"


def by_invariant(campaigns: Sequence[tuple[Mapping[str, int], Mapping[str, str]]]) -> list[dict[str, str]]:
    """The rows of the table: one for each fault, with a column for each invariant.

    Args:
        campaigns: of each campaign, how often each fault was injected, and what was decided for each invariant.

    >>> rows = by_invariant([({"worker": 3}, {"I1": "holds", "I2": "undecided: why"}), ({"worker": 4}, {})])
    >>> [(it["fault"], it["I1"], it["I2"], it["not stored"]) for it in rows]
    [('``worker``', '3 / 0', '0 / 3', '4')]
    """
    counts: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    not_stored = Counter[str]()
    for faults, decisions in campaigns:
        for fault, n in faults.items():
            for invariant in INVARIANTS:
                verdict = decisions.get(invariant, NOT_STORED).partition(":")[0]
                # A violation is one of the campaign, whatever fault has caused it.
                counts[fault][invariant][verdict] += 1 if verdict == "violated" else n
            not_stored[fault] += 0 if decisions else n
    return [
        {
            "fault": f"``{fault}``",
            **{name: _cell(counts[fault][name]) for name in INVARIANTS},
            NOT_STORED: str(not_stored[fault]),
        }
        for fault in sorted(counts)
    ]


def _cell(verdicts: Counter[str]) -> str:
    if not verdicts.keys() - {NOT_STORED}:
        return ""
    text = f"{verdicts['holds']} / {verdicts['undecided']}"
    return f"{text}, **{verdicts['violated']} violated**" if verdicts["violated"] else text
