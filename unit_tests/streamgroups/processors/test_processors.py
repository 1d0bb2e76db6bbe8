"""P1: a processor has the keys of its file, and every mistake in it is reported with its field and a remedy."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.connections.references import FromEnvironment
from streamgroups.errors import InvalidProcessor, error_of
from streamgroups.instances.entries import MAX_REPLICAS
from streamgroups.instances.entry_json import read_definition, read_entry, write_entry
from streamgroups.processors.client_options import needs_session_timeout
from streamgroups.processors.processor import FunctionCall, Processor, SinkKind, Sql, UserFunction
from streamgroups.processors.reading import processor_of, read_processor
from streamgroups.processors.rules import conflicts, warnings
from streamgroups.processors.values import node_of

FLIGHTS: dict[str, Any] = {
    "name": "late-flights",
    "source": {"connection": "prod", "subscribe": "flights"},
    "steps": [
        {"decode": {"format": {"json": "carrier string, dep timestamp, delay int"}}},
        {"sql": "SELECT *, record.carrier, record.dep FROM input WHERE record.delay > 15"},
        {"function": "my_package.flights:enrich"},
        {
            "windows": {
                "on": "dep",
                "by": ["carrier"],
                "window": {"tumbling": "1 hour"},
                "watermark_delay": "30s",
                "aggregate": {"n": "count(*)"},
                "prepartitioned": True,
            }
        },
    ],
    "sink": {"connection": "warehouse", "table": "delays", "mode": "upsert", "key": ["window_start", "carrier"]},
    "dead_letters": {"connection": "prod", "topic": "late-flights.dlq", "max_share": 0.2},
}


def _changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The processor with another value; without the key for ``...``."""
    found = copy.deepcopy(FLIGHTS)
    inner: Any = found
    for key in path[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return found


def _problems(document: Any) -> list[str]:
    return [str(it) for it in read_processor(node_of(document))[1]]


def test_P1_a_processor_has_the_parts_of_its_file() -> None:
    flights = processor_of(FLIGHTS)
    assert (flights.group_id(), flights.group_id("board")) == ("local.late-flights", "board.late-flights")
    assert flights.transactional_id("board", 2) == "streamgroups-board.late-flights-2.streamgroups"
    assert [type(step) for step in flights.steps] == [FunctionCall, Sql, UserFunction, FunctionCall]
    assert flights.sink is not None
    assert (flights.sink.kind, flights.delivery, flights.membership) == (SinkKind.POSTGRES, "exactly-once", "shared")
    assert [step.state_name for step in flights.states] == ["windows"]
    assert flights.connections == ("prod", "warehouse")
    assert flights.letter_limits == {"max_share": 0.2}


def test_a_processor_survives_a_round_trip() -> None:
    flights = processor_of(FLIGHTS)
    assert processor_of(flights.document).document == flights.document
    assert processor_of(flights) is flights
    assert pickle.loads(pickle.dumps(flights)) == flights


def test_a_function_can_be_the_function_itself() -> None:
    made = processor_of(_changed("steps", 2, "function", to=_changed))
    assert made.steps[2] == UserFunction(_changed)
    assert made.document["steps"][2] == {"function": f"{__name__}:_changed"}


def test_options_of_the_source_are_texts() -> None:
    options = {"connection": "prod", "subscribe": "flights", "maxOffsetsPerTrigger": 1000, "includeHeaders": True}
    expected = {"subscribe": "flights", "maxOffsetsPerTrigger": "1000", "includeHeaders": "true"}
    assert processor_of(_changed("source", to=options)).source.options == expected


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        (("nam",), "late", "nam: Key 'nam' is unknown. Did you mean 'name'?"),
        (("name",), "a.b", "name: 'a.b' is not valid. Write a name of letters, digits, '_' and '-'."),
        (("name",), "streamgroups", "name: The name 'streamgroups' begins with 'streamgroups'."),
        (("name",), 5, "name: '5' is not a name of letters, digits, '_' and '-'."),
        (("name",), ..., "name: Key 'name' is missing."),
        (("source",), ..., "source: Key 'source' is missing."),
        (
            ("source", "connection"),
            ...,
            "source.connection: Key 'connection' is missing. Add 'connection: ...', the name of a",
        ),
        (
            ("source", "subscribe"),
            ...,
            "source: No topics to read are set. Set exactly one of subscribe, subscribePattern",
        ),
        (("source", "subscribePattern"), "x", "source: 'subscribe' and 'subscribePattern' exclude each other."),
        (("source", "subscrib"), "x", "source.subscrib: Option 'subscrib' is unknown. Did you mean 'subscribe'?"),
        (
            ("source", "group.id"),
            "x",
            "source.group.id: Option 'group.id' is unknown. The group is '<instance>.<name>'.",
        ),
        (("source", "kafka.group.id"), "x", "source.kafka.group.id: Option 'kafka.group.id' is not allowed"),
        (("source", "kafka.bootstrap.servers"), "x", "It belongs to the connection"),
        (
            ("source", "kafka.Client.Id"),
            "x",
            "Option 'kafka.Client.Id' is not allowed in a processor. Each run has a name",
        ),
        (
            ("source", "kafka.sasl.password"),
            "hunter2",
            "Option 'kafka.sasl.password' is not allowed in a processor. It belongs to",
        ),
        (("source", "stateRetention"), 5, "source.stateRetention: '5' is not a duration. Write a number with a unit"),
        (
            ("source", "membership"),
            "exclusiv",
            "source.membership: 'exclusiv' is no valid value. Did you mean 'exclusive'?",
        ),
        (
            ("source", "minPartitions"),
            9,
            "source.minPartitions: 'minPartitions' divides a partition among tasks, but the step",
        ),
        (("steps",), {"decode": {}}, "steps: A table is not a list of steps, each with '- '."),
        (("steps", 0), {"decod": {}}, "steps[0].decod: Step 'decod' is unknown. Did you mean 'decode'?"),
        (("steps", 0), "decode", "steps[0]: 'decode' is not one step, as in '- decode: {format: {json: ...}}'."),
        (("steps", 0), {"sql": "x", "function": "a:b"}, "steps[0]: It has 2 keys: sql, function."),
        (("steps", 0, "decode", "format"), {"jso": "n int"}, "format.jso: Key 'jso' is unknown. Did you mean 'json'?"),
        (
            ("steps", 0, "decode", "format"),
            {"avro": {"subject": "x"}},
            "sg.schemas.Avro has neither a schema nor a registry.",
        ),
        (
            ("steps", 2, "function"),
            "enrich",
            "steps[2].function: 'enrich' is not valid. Write a function as 'module:name'.",
        ),
        (
            ("steps", 3, "windows", "watermark_delay"),
            30,
            "watermark_delay: '30' is not a duration. Write a number with a unit",
        ),
        (("steps", 3, "windows", "window"), {"tumbling": 60}, "tumbling: '60' is not a duration."),
        (("steps", 3, "windows", "window"), {"tumbling": "0s"}, "steps[3].windows.window: Option 'size' is 0ms."),
        (
            ("steps", 3, "windows", "window"),
            {"hopping": {"size": "1m", "hop": "2m"}},
            "some records would be in no window.",
        ),
        (
            ("steps", 3, "windows", "by"),
            "carrier",
            "'carrier' is not a list of columns. Write a list of columns, as in [carrier].",
        ),
        (
            ("steps", 3, "windows", "agregate"),
            {},
            "agregate: Argument 'agregate' is unknown. Did you mean 'aggregate'?",
        ),
        (("steps", 3, "windows", "aggregate"), ..., "windows.aggregate: Key 'aggregate' is missing."),
        (("steps", 3, "windows", "flush"), "no", "flush: 'no' is not true or false. Write true or false."),
        (("steps", 3, "windows", "time"), "query", "keep state in a checkpoint of Spark. Remove 'time', or set"),
        (
            ("steps", 3),
            {"with_event_time": {"column": "dep"}},
            "The step 'with_event_time' is for streams of one member.",
        ),
        (
            ("steps", 1),
            {"windows": FLIGHTS["steps"][3]["windows"]},
            "State 'windows' is also that of steps[1]. Add 'name: ...'",
        ),
        (("sink", "topic"), "x", "sink.topic: Argument 'topic' is unknown."),
        (("sink", "conninfo"), "hunter2", "sink.conninfo: Argument 'conninfo' is unknown. It belongs to a connection."),
        (("sink", "key"), ..., "sink.mode: The mode is 'upsert', but the key is missing."),
        (("sink", "mode"), "append", "sink.key: The key has no effect without upsert."),
        (("sink", "delivery"), "at-least-once", "sink.delivery: 'at-least-once' is no valid value."),
        (
            ("sink",),
            {"format": "console", "delivery": "exactly-once"},
            "The format 'console' of Spark is not exactly once. Remove",
        ),
        (
            ("sink",),
            {"connection": "prod", "topic": "flights"},
            "sink.topic: Topic 'flights' is also read: source.subscribe",
        ),
        (("sink",), {"connection": "prod", "topic": "late-flights.dlq"}, "is also the topic of the output: sink.topic"),
        (("dead_letters",), ..., "The step 'decode' can have dead letters, but the key 'dead_letters' is missing."),
        (("dead_letters", "topic"), "flights", "dead_letters.topic: Topic 'flights' is also read"),
        (("dead_letters", "max_share"), "half", "dead_letters.max_share: 'half' is not a number."),
        (
            ("dead_letters", "connection"),
            "test",
            "Dead letters in Kafka need the cluster of the source, connection 'prod'.",
        ),
        (
            ("dead_letters",),
            {"connection": "warehouse", "table": "delays"},
            "Table 'delays' is also the table of the output",
        ),
        (
            ("dead_letters",),
            {"connection": "warehouse", "table": "dead", "mode": "upsert", "key": ["topic"]},
            "dead_letters.mode: With this mode a dead letter replaces or deletes others. Remove 'mode', or use 'upsert' with",
        ),
        (("replicas",), 0, "replicas: '0' is out of range. Write a number from 1 to 64."),
        (("replicas",), 65, "replicas: '65' is out of range. Write a number from 1 to 64."),
        (("name",), "late\n", "name: 'late\n' is not valid."),
        (("steps", 1, "sql"), "SELECT '\ud83d'", "steps[1].sql: The text contains half of a surrogate pair. Write the"),
        (("sink", "key", 1), "\ude00", "sink.key[1]: The text contains half of a surrogate pair."),
        (
            ("steps", 3, "windows", "aggregate"),
            {"\ud800": "count(*)"},
            "aggregate: A key contains half of a surrogate pair.",
        ),
        (
            ("sink",),
            {"format": "console", "options": {"n": float("inf")}},
            "sink.options.n: 'inf' is not a finite number.",
        ),
        (("replicas",), 1.5, "replicas: '1.5' is not a whole number."),
        (("replicas",), True, "replicas: 'true' is not a whole number."),
        (("checkpoint",), "s3://bucket/late", "checkpoint: A lasting checkpoint needs one owner of all partitions."),
        (
            ("source",),
            {"connection": "prod", "subscribe": "a", "kafka.isolation.level": "x", "kafka.ISOLATION.level": "y"},
            "source.kafka.ISOLATION.level: Option 'kafka.ISOLATION.level' is given twice: it is also in line 0, as "
            "'kafka.isolation.level'. Remove one of them.",
        ),
        (
            ("source",),
            {"connection": "prod", "subscribe": "a", "kafka.client.rack": "x", "kafka.client.rack ": "y"},
            "source.kafka.client.rack : Option 'kafka.client.rack ' is given twice",
        ),
        (
            ("sink",),
            {"format": "console", "options": {"numRows": 5, "NUMROWS": 6}},
            "sink.options.NUMROWS: Option 'NUMROWS' is given twice: it is also in line 0, as 'numRows'.",
        ),
        (("trigger",), {"processingTime": 10}, "trigger.processingTime: '10' is not a duration."),
    ],
    ids=lambda it: ".".join(map(str, it)) if isinstance(it, tuple) else None,
)
def test_P1_a_mistake_is_rejected_with_its_remedy(path: tuple[str | int, ...], to: Any, expected: str) -> None:
    problems = _problems(_changed(*path, to=to))
    assert any(expected in it for it in problems), problems
    assert "hunter2" not in "".join(problems)


def test_P1_all_problems_are_reported_at_once() -> None:
    document = _changed("steps", 3, "windows", "flush", to="no")
    document["source"]["subscrib"] = "x"
    document["replicas"] = 0
    with pytest.raises(InvalidProcessor) as raised:
        processor_of(document, "late.yaml")
    assert str(raised.value).splitlines() == [f"late.yaml: {it}" for it in _problems(document)]
    assert len(str(raised.value).splitlines()) == 3
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert str(error_of(raised.value.document)) == str(raised.value)


def test_a_topic_of_a_pattern_is_not_written() -> None:
    document = _changed("source", to={"connection": "prod", "subscribePattern": "^fl"})
    assert _problems(document) == []
    document["dead_letters"]["topic"] = "flop"
    assert "Topic 'flop' is also read: source.subscribePattern" in _problems(document)[0]
    for wrong in ("(", "a{99999999999}", "(" * 9_000 + ")" * 9_000):
        document["source"]["subscribePattern"] = wrong
        assert _problems(document) == [
            "source.subscribePattern: The value is not a regular expression. Correct it, as in '^flights-'."
        ]


def test_P1_no_two_members_have_one_query_name() -> None:
    """Metrics, failures and dead letters have the name, and a session starts no second query of one name."""
    declared = [("late", 2), ("late-1", 1), ("late-1", 3), ("late-1-0", 1)]
    for instance in ("board", "board-1"):
        names = [
            replace(processor_of(FLIGHTS), name=name, replicas=replicas).query_name(instance, member)
            for name, replicas in declared
            for member in range(replicas)
        ]
        assert len(set(names)) == len(names)


def test_P1_state_that_cannot_be_shared_rejects_replicas() -> None:
    document = _changed("replicas", to=3)
    assert _problems(document) == []
    document |= {"checkpoint": "s3://bucket/late"}
    document["source"]["membership"] = "exclusive"
    document["steps"][3]["windows"]["time"] = "query"
    (problem,) = _problems(document)
    assert "There are 3 replicas, but source.membership is 'exclusive'" in problem
    assert "it has a checkpoint" in problem
    assert "the state of steps[3] (windows with time: query) cannot be shared" in problem


def test_a_repartitioned_topic_is_the_output() -> None:
    step = {"repartition": {"by": ["carrier"], "topic": "by-carrier", "partitions": 4}}
    document = {"name": "a", "source": FLIGHTS["source"], "steps": [step]}
    writer = processor_of(document)
    assert writer.repartition is writer.steps[0]
    assert writer.delivery == "exactly-once"
    assert any(
        "is the output of the processor. Remove the sink." in it
        for it in _problems({**document, "sink": FLIGHTS["sink"]})
    )
    assert any(
        "is not the last one" in it for it in _problems({**document, "steps": [step, {"sql": "SELECT * FROM input"}]})
    )
    step["repartition"]["topic"] = "flights"
    assert any("Topic 'flights' is also read" in it for it in _problems(document))
    reader = {"by": ["carrier"], "topic": "by-carrier", "columns": "carrier string"}
    source = {"connection": "prod", "read_repartitioned": reader}
    assert processor_of({"name": "b", "source": source}).source.topics == ("by-carrier",)


def test_a_join_of_a_shared_stream_needs_the_assignor_range() -> None:
    step = {"join": {"left": "a", "right": "b", "by": ["key"], "on": "timestamp", "within": "1m"}}
    document = {"name": "a", "source": {"connection": "prod", "subscribe": "a,b"}, "steps": [step]}
    assert "needs the assignor 'range'" in _problems(document)[0]
    document["source"] |= {"kafka.group.protocol": "consumer", "kafka.group.remote.assignor": "range"}
    assert _problems(document) == []
    document["source"] |= {"kafka.group.protocol": " CONSUMER "}
    assert _problems(document) == []


@pytest.mark.parametrize(
    ("options", "settings", "expected"),
    [
        ({}, {}, True),
        ({"kafka.group.protocol": "Classic"}, {"group.protocol": "consumer"}, True),
        ({"kafka.Group.Protocol": " CONSUMER "}, {}, False),
        ({}, {"group.protocol": "Consumer"}, False),
        ({"kafka.Session.Timeout.ms": "6000"}, {}, False),
        ({}, {"session.timeout.ms": "6000"}, False),
        ({}, {"group.protocol": FromEnvironment("PROTOCOL")}, False),
    ],
)
def test_a_member_of_the_consumer_protocol_has_no_session_timeout(
    options: dict[str, str], settings: dict[str, Any], expected: bool
) -> None:
    assert needs_session_timeout(options, settings) is expected


def test_P2_an_instance_stores_the_largest_processor() -> None:
    processor = processor_of(_changed("replicas", to=MAX_REPLICAS))
    definition = read_definition(processor.name, {"document": processor.document})
    assert read_entry(*write_entry(definition)) == definition


def test_P1_two_processors_of_one_group_are_rejected() -> None:
    one, two = (processor_of(node_of(FLIGHTS), file) for file in ("one.yaml", "two.yaml"))
    (problem,) = conflicts([one, two], "board")
    assert str(problem) == (
        "two.yaml: name: Group 'board.late-flights' is also that of one.yaml. Each of both would get a part of the records. "
        "Rename one of them."
    )
    other = processor_of({**FLIGHTS, "name": "other"}, "other.yaml")
    assert conflicts([one, other], "board") == ()


def test_P1_a_table_of_two_groups_is_a_warning() -> None:
    sink = {"connection": "warehouse", "table": "delays"}
    found = warnings([processor_of({**FLIGHTS, "name": name, "sink": sink}) for name in "ab"], "board")
    assert found == (
        "Table 'delays' of connection 'warehouse' receives appended rows of the groups board.a, board.b. A reset of one of them "
        "writes its rows again.",
    )
    assert warnings([processor_of({**FLIGHTS, "name": name}) for name in "ab"]) == ()
    same = [processor_of(node_of(FLIGHTS), file) for file in ("one.yaml", "two.yaml")]
    assert warnings(same) == (
        "State 'windows' of group 'local.late-flights' belongs to one.yaml and two.yaml: one of them overwrites the other.",
    )


_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["a:b", "1m", "("])
)
_KEYS = st.sampled_from(
    [
        "name",
        "source",
        "steps",
        "sink",
        "connection",
        "subscribe",
        "decode",
        "windows",
        "window",
        "tumbling",
        "format",
        "json",
    ]
) | st.text(max_size=4)
_VALUES = st.recursive(
    _LEAVES, lambda it: st.lists(it, max_size=3) | st.dictionaries(_KEYS, it, max_size=4), max_leaves=8
)


@given(_VALUES, st.data())
def test_any_value_is_read_or_rejected(value: Any, data: st.DataObject) -> None:
    """Of a valid processor, any part has any other value."""
    document = copy.deepcopy(FLIGHTS)
    inner: Any = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = data.draw(st.sampled_from(keys))
        if not inner[key] or not isinstance(inner[key], dict | list) or data.draw(st.booleans()):
            inner[key] = value
            break
        inner = inner[key]
    processor, problems = read_processor(node_of(document))
    assert (processor is None) == bool(problems)
    if processor is not None:
        assert isinstance(processor, Processor)
        assert processor_of(processor.document).document == processor.document
