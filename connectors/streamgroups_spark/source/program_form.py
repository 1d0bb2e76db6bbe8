"""The form of the program of a query, from the facts about it and its ledger.

Called by ``source.running_query`` before the query joins its group. Source: SEMANTICS S14; ``streamgroups.groups.program``.
"""

from __future__ import annotations

from typing import Any

from streamgroups.groups.program import form_of
from streamgroups.ledgers.staging import StagingSink
from streamgroups_spark.bridge.stage_name import StageName
from streamgroups_spark.messages.query import QueryFacts


def form_of_query(facts: QueryFacts | None, sink: StagingSink[Any, Any, Any, Any] | None) -> str:
    """Returns the form of a program. Empty if the query, or its sink, is unknown.

    Args:
        facts: the facts about the query. ``None`` if they are unavailable.
        sink: the sink that stores the ledger of the query. ``None`` without a ledger.

    >>> facts = QueryFacts("/data/board", frozenset(), stages=frozenset({("minutes:flushes+kind=windows",)}), output="kafka:clicks")
    >>> form_of_query(facts, None)
    'windows:minutes -> kafka:clicks'
    """
    if facts is None or facts.checkpoint is None:
        return ""
    output = facts.output if sink is None else sink.output
    if output is None:
        return ""
    branches = [[StageName.parse(it).in_form for it in branch] for branch in facts.stages]
    return form_of(branches, facts.operators, output)
