"""S8, X4: the process of a source at its stop, and the facts of its batches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight
from streamgroups_spark.messages.batch import BatchFacts, BatchRequest, BatchWritten
from streamgroups_spark.source.running_query import RunningQuery


def test_S8_a_source_that_stops_closes_its_socket_before_it_leaves_its_group() -> None:
    """The next run of the query can start meanwhile, and its sink requests a batch of the earlier run."""
    done: list[str] = []
    query = RunningQuery.__new__(RunningQuery)
    query._imported = None
    vars(query)["_rpc_server"] = SimpleNamespace(close=lambda: done.append("closed"))
    vars(query)["micro_batches"] = SimpleNamespace(stop=lambda: done.append("left"))
    query.stop()
    assert done == ["closed", "left"]


@pytest.mark.parametrize(("operators", "expected"), [(("agg",), [True, True, False]), ((), [False, False, False])])
def test_X4_only_the_first_written_batch_of_a_run_can_repeat_a_no_data_batch(
    operators: tuple[str, ...], expected: list[bool]
) -> None:
    query = RunningQuery.__new__(RunningQuery)
    query.name, query._group_id, query._member, query._has_written = "one", "board", None, False
    query._states_run_id, query._form = None, ""
    batches = SimpleNamespace(run=lambda _: InFlight(3, ()), written=InFlight(0, ()), owned_before={})
    vars(query)["micro_batches"] = batches
    vars(query)["_options"] = SimpleNamespace(mode=MembershipMode.EXCLUSIVE, subscription=None)
    vars(query)["facts"] = SimpleNamespace(query_id="5f2c", operators=operators, unknown_operators=())

    def may_repeat() -> bool:
        facts = query._answer(BatchRequest({}))
        assert isinstance(facts, BatchFacts)
        return facts.may_repeat_no_data

    found = [may_repeat(), may_repeat()]
    query._answer(BatchWritten({}))
    assert [*found, may_repeat()] == expected
