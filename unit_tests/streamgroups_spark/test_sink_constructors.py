"""The three sinks are made in one way: keyword arguments with types, the same names for the same things, errors when they are made."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

import streamgroups as sg
from streamgroups.errors import InvalidOption
from streamgroups_spark.event_time.with_event_time import with_event_time
from streamgroups_spark.sinks.exactly_once import KafkaSink
from streamgroups_spark.source.source_options import parse

SINKS = (sg.KafkaSink, sg.PostgresSink, sg.DeltaSink)
SERVERS = {"bootstrap_servers": "broker:9092"}


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_a_sink_is_a_frozen_value_of_keyword_arguments(sink: Callable[..., Any]) -> None:
    parameters = inspect.signature(sink).parameters.values()
    assert {it.kind for it in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(it.annotation is not Any for it in parameters)
    assert dataclasses.is_dataclass(sink)


def test_the_same_things_have_the_same_names_and_types() -> None:
    postgres, delta = (get_type_hints(sink) for sink in SINKS[1:])
    assert {name: postgres[name] == delta[name] for name in ("key", "delete_marker", "create_table")} == {
        "key": True,
        "delete_marker": True,
        "create_table": True,
    }
    assert set(get_args(postgres["mode"])) == {"append", "upsert"} < set(get_args(delta["mode"]))


def test_a_kafka_sink_as_options_of_spark() -> None:
    sink = KafkaSink(
        **SERVERS,
        topic="delays",
        include_headers=False,
        delivery="at-least-once",
        transactional_id="delays-1",
        transaction_timeout="PT20S",
        settings={"compression.type": "zstd", "kafka.security.protocol": "SSL"},
    )
    assert sink.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "delays",
        "includeHeaders": "false",
        "delivery": "at-least-once",
        "kafka.transactional.id": "delays-1",
        "kafka.transaction.timeout.ms": "20000",
        "kafka.compression.type": "zstd",
        "kafka.security.protocol": "SSL",
    }


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"topic": " "}, "Option 'topic' is empty"),
        ({"delivery": "twice"}, "Option 'delivery' is 'twice'. Allowed values: exactly-once, at-least-once"),
        ({"transaction_timeout": "0s"}, "Option 'kafka.transaction.timeout.ms' is '0'"),
        ({"transaction_timeout": "60000"}, "Option 'transaction_timeout' is '60000', which is not a duration"),
        ({"settings": {"acks": "1"}}, "Option 'kafka.acks' is '1'"),
        ({"settings": {"sasl.pasword": "hunter2"}}, "Did you mean 'kafka.sasl.password'"),
        ({"settings": {"bootstrap.servers": "b:1"}}, "Use the argument 'bootstrap_servers'"),
        ({"settings": {"kafka.Transactional.ID": "b"}}, "Use the argument 'transactional_id'"),
        ({"settings": {"transactional.id ": "b"}}, "Use the argument 'transactional_id'"),
        ({"settings": {"ACKS": "all", "acks": "all"}}, "Options 'kafka.ACKS' and 'kafka.acks' are the same option"),
        (
            {"settings": {"kafka.acks": "all", "acks": "-1"}},
            "Options 'kafka.acks' and 'kafka.acks' are the same option",
        ),
    ],
)
def test_what_contradicts_is_rejected_when_the_sink_is_made(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption) as rejection:
        KafkaSink(**{**SERVERS, **wrong})
    assert why in str(rejection.value)


def test_settings_are_not_shown() -> None:
    assert "hunter2" not in repr(KafkaSink(**SERVERS, settings={"sasl.password": "hunter2"}))


def test_arguments_of_event_time_are_options_of_the_source_by_the_same_names() -> None:
    source = {"kafka.bootstrap.servers": "b:1", "group.id": "g", "subscribe": "t"}
    # The end of a record's validity is a column of the query, as the event time is.
    for name in set(list(inspect.signature(with_event_time).parameters)[2:]) - {"until"}:
        first, *others = name.split("_")
        option = first + "".join(map(str.capitalize, others))
        parse({**source, option: "none"}, streaming=True)
