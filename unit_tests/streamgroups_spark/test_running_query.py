"""S8: the process of a source at its stop."""

from __future__ import annotations

from types import SimpleNamespace

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
