"""Tools for tests of Spark queries and consumer groups on a real broker.

Used by the tests and benchmarks of this library, and by users with ``import streamgroups_testkit``. The names are loaded
at their first use, so a test needs only the packages of the tools that it uses. Source: PEP 562.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    # For type checkers, which do not call __getattr__; a test compares these imports with _PLACES.
    from streamgroups_broker import EmbeddedKafka as EmbeddedKafka
    from streamgroups_testkit.broker import BROKER_PROPERTIES as BROKER_PROPERTIES
    from streamgroups_testkit.broker import Broker as Broker
    from streamgroups_testkit.clocks import ControlledClock as ControlledClock
    from streamgroups_testkit.clocks import controlled_clock as controlled_clock
    from streamgroups_testkit.containers import ContainerKafka as ContainerKafka
    from streamgroups_testkit.postgres import PostgresServer as PostgresServer
    from streamgroups_testkit.producing import Load as Load
    from streamgroups_testkit.producing import produce as produce
    from streamgroups_testkit.producing import recreate_topic as recreate_topic
    from streamgroups_testkit.queries import QueryProcess as QueryProcess
    from streamgroups_testkit.queries import all_records as all_records
    from streamgroups_testkit.queries import arrived_records as arrived_records
    from streamgroups_testkit.queries import exclusive_options as exclusive_options
    from streamgroups_testkit.queries import shared_options as shared_options
    from streamgroups_testkit.reading import ConsumedRecord as ConsumedRecord
    from streamgroups_testkit.reading import committed_offsets as committed_offsets
    from streamgroups_testkit.reading import describe_group as describe_group
    from streamgroups_testkit.reading import end_offsets as end_offsets
    from streamgroups_testkit.reading import read_committed as read_committed
    from streamgroups_testkit.reading import wait_until_group_is_empty as wait_until_group_is_empty
    from streamgroups_testkit.schema_registry import FakeSchemaRegistry as FakeSchemaRegistry
    from streamgroups_testkit.session_queries import QueryInSession as QueryInSession
    from streamgroups_testkit.session_queries import running_query as running_query
    from streamgroups_testkit.spark_sessions import session_builder as session_builder
    from streamgroups_testkit.waits import wait_until as wait_until

_PLACES = places(
    {
        "streamgroups_broker": "EmbeddedKafka",
        "streamgroups_testkit.broker": "BROKER_PROPERTIES Broker",
        "streamgroups_testkit.clocks": "ControlledClock controlled_clock",
        "streamgroups_testkit.containers": "ContainerKafka",
        "streamgroups_testkit.postgres": "PostgresServer",
        "streamgroups_testkit.producing": "Load produce recreate_topic",
        "streamgroups_testkit.queries": "QueryProcess all_records arrived_records exclusive_options shared_options",
        "streamgroups_testkit.reading": "ConsumedRecord committed_offsets describe_group end_offsets read_committed "
        "wait_until_group_is_empty",
        "streamgroups_testkit.schema_registry": "FakeSchemaRegistry",
        "streamgroups_testkit.session_queries": "QueryInSession running_query",
        "streamgroups_testkit.spark_sessions": "session_builder",
        "streamgroups_testkit.waits": "wait_until",
    }
)
__all__ = [*_PLACES]
__getattr__, __dir__ = accessors(__name__, _PLACES)
