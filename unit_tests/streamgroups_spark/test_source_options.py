"""S4, S5: every option is accepted, or rejected with its name and a remedy; nothing secret is ever printed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups.groups.batch_lease import LeaseWord
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.subscription import Partitions, Pattern, Topics
from streamgroups.partitions import TopicPartition
from streamgroups.positions import AtOffset, AtTime, Latest, Position, Positions, TrimHorizon, WhenNoRecordMatches
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups.query.trigger_limits import Limits
from streamgroups_spark.source.source_options import SourceOptions, parse

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LENIENT = WhenNoRecordMatches.LATEST
BASE = {"kafka.bootstrap.servers": "broker:9092", "group.id": "airline", "subscribe": "flights"}
WITHOUT_SUBSCRIBE = {name: value for name, value in BASE.items() if name != "subscribe"}


def stream(**options: str) -> SourceOptions:
    """Parses options for ``readStream``; ``__`` stands for a dot."""
    return parse({**BASE, **dotted(options)}, streaming=True)


def batch(**options: str) -> SourceOptions:
    return parse({**BASE, **dotted(options)}, streaming=False)


def dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def rejected(options: dict[str, str], *, streaming: bool = True) -> InvalidOption:
    with pytest.raises(InvalidOption) as rejection:
        parse(options, streaming=streaming)
    assert rejection.value.remedy
    return rejection.value


def test_S4_defaults_are_those_of_spark_s_kafka_source() -> None:
    options = stream()
    assert options.subscription == Topics(("flights",))
    assert (options.starting, options.ending) == (Positions(Latest()), Positions(Latest()))
    assert (options.mode, options.on_restart) == (MembershipMode.SHARED, OnRestart.GROUP)
    assert options.limits == Limits(None, None, 15 * 60 * 1000)
    assert (options.min_tasks, options.max_task_offsets) == (None, None)
    assert (options.on_data_loss, options.include_headers) == (LossPolicies(OnDataLoss.FAIL), False)
    assert (options.poll_timeout_ms, options.attempts, options.retry_interval_ms) == (120_000, 4, 1_000)
    assert options.history_dir is None
    assert batch().starting == Positions(TrimHorizon())


@pytest.mark.parametrize(
    ("name", "value", "field", "understood"),
    [
        ("group.id", "other", "group_id", "other"),
        ("groupIdPrefix", "mine", "group_id_prefix", "mine"),
        ("subscribe", " flights, orders,,flights", "subscription", Topics(("flights", "orders"))),
        ("membership", "Exclusive", "mode", MembershipMode.EXCLUSIVE),
        ("onRestart", "FAIL", "on_restart", OnRestart.FAIL),
        ("leaseTimeout", "15m", "lease_timeout_ms", 900_000),
        ("leaseTimeout", " Off ", "lease_timeout_ms", LeaseWord.OFF),
        ("maxOffsetsPerTrigger", "5", "limits", Limits(max_offsets=5)),
        ("minOffsetsPerTrigger", " 5 ", "limits", Limits(min_offsets=5)),
        ("maxTriggerDelay", "90s", "limits", Limits(max_delay_ms=90_000)),
        ("maxTriggerDelay", "2 h", "limits", Limits(max_delay_ms=7_200_000)),
        ("maxTriggerDelay", "250ms", "limits", Limits(max_delay_ms=250)),
        ("maxDrift", "10m", "limits", Limits(max_drift_ms=600_000)),
        ("targetBatchTime", "1.5s", "limits", Limits(target_batch_ms=1_500)),
        ("minPartitions", "9", "min_tasks", 9),
        ("maxRecordsPerPartition", "1000", "max_task_offsets", 1_000),
        ("failOnDataLoss", "False", "on_data_loss", LossPolicies(OnDataLoss.EARLIEST)),
        ("onDataLoss", "SKIP", "on_data_loss", LossPolicies(OnDataLoss.SKIP)),
        ("includeHeaders", "true", "include_headers", True),
        ("eventTimeHeader", "dep_ms", "event_time_header", "dep_ms"),
        ("importFrom", " trades ", "import_from", "trades"),
        ("importFrom", "none", "import_from", None),
        ("watermarkHeader", "until_ms", "watermark_header", "until_ms"),
        ("watermarkHeader", "None", "watermark_header", None),
        ("includeWatermark", "true", "include_watermark", True),
        ("onViolation", " Drop ", "on_violation", OnViolation.DROP),
        ("onViolation", "none", "on_violation", OnViolation.KEEP),
        ("kafkaConsumer.pollTimeoutMs", "500", "poll_timeout_ms", 500),
        ("fetchOffset.numRetries", "0", "attempts", 1),
        ("fetchOffset.retryIntervalMs", "10", "retry_interval_ms", 10),
        ("historyDir", "histories", "history_dir", "histories"),
        ("directRecords", " False ", "direct_records", False),
        ("directRecords", "true", "direct_records", True),
        ("stateCopies", "false", "state_copies", False),
    ],
)
@pytest.mark.parametrize("respell", [str, str.lower, str.upper])
def test_S4_every_option_is_taken_in_any_case(
    name: str, value: str, field: str, understood: Any, respell: type[str]
) -> None:
    base = {n: v for n, v in BASE.items() if n != name}
    assert getattr(parse({**base, respell(name): value}, streaming=True), field) == understood


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("membership", "both", "shared, exclusive"),
        ("onRestart", "", "checkpoint, group, fail"),
        ("leaseTimeout", "never", "500ms, 30s, 10 minutes"),
        ("leaseTimeout", "999ms", "longest batch"),
        ("maxOffsetsPerTrigger", "0", "whole number greater than 0"),
        ("minOffsetsPerTrigger", "-1", "whole number greater than 0"),
        ("maxTriggerDelay", "soon", "500ms, 30s, 10 minutes"),
        ("maxTriggerDelay", "-5s", "500ms, 30s, 10 minutes"),
        ("maxDrift", "600", "500ms, 30s, 10 minutes"),
        ("maxDrift", "0s", "ahead of the watermark, such as 10m"),
        ("maxDrift", "-1s", "500ms, 30s, 10 minutes"),
        ("targetBatchTime", "10", "500ms, 30s, 10 minutes"),
        ("targetBatchTime", "0ms", "duration of a batch, such as 10s"),
        ("targetBatchTime", "-1s", "500ms, 30s, 10 minutes"),
        ("minPartitions", "1.5", "whole number greater than 0"),
        ("maxRecordsPerPartition", "many", "whole number greater than 0"),
        ("failOnDataLoss", "yes", "true, false"),
        ("onDataLoss", "latest", "Allowed values: fail, skip, earliest"),
        ("onDataLoss", '{"flights":"latest"}', "Allowed values: fail, skip, earliest"),
        ("onDataLoss", '{"flights":{"-1":"skip"}}', "Allowed values: fail, skip, earliest"),
        ("onDataLoss", "{}", "Allowed values: fail, skip, earliest"),
        ("includeHeaders", "1", "true, false"),
        ("directRecords", "off", "true, false"),
        ("eventTimeHeader", " ", "name of a header"),
        ("importFrom", " ", "another group"),
        ("importFrom", "airline", "another group"),
        ("watermarkHeader", "", "name of a header"),
        ("includeWatermark", "yes", "true, false"),
        ("onViolation", "skip", "keep, drop, adjust"),
        ("kafkaConsumer.pollTimeoutMs", "0", "whole number greater than 0"),
        ("fetchOffset.numRetries", "-1", "0 or greater"),
        ("fetchOffset.retryIntervalMs", "x", "0 or greater"),
        ("startingOffsets", "newest", "earliest, latest or a number"),
        ("startingOffsets", '{"flights":{"0":-3}}', "a number for each partition"),
        ("startingOffsets", "{}", "a number for each partition"),
        ("startingOffsetsByTimestamp", '{"flights":{"0":-1}}', "a number for each partition"),
        ("startingTimestamp", "20130101", "2026-01-31T12:00:00Z"),
        ("startingOffsetsByTimestamp", "[1]", "a number for each partition"),
        ("startingTimestamp", "yesterday", "2026-01-31T12:00:00Z"),
        ("startingOffsetsByTimestampStrategy", "newest", "error, latest"),
    ],
)
def test_S4_a_bad_value_is_rejected_with_the_option_the_value_and_the_allowed_values(
    name: str, value: str, remedy: str
) -> None:
    rejection = rejected({**BASE, name: value})
    assert f"'{name}'" in rejection.what
    assert f"'{value}'" in rejection.what
    assert remedy in rejection.remedy


@pytest.mark.parametrize("name", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_S4_a_time_in_seconds_is_rejected_with_its_partition(name: str) -> None:
    streaming = name.startswith("starting")
    value = '{"flights":{"0":1732334879000,"1":1732334879}}'
    what = rejected({**BASE, name: value}, streaming=streaming).what
    assert f"'{name}' of flights-1 is '1732334879', which seems to be a time in seconds" in what


#: Python's ``int`` accepts all of them but the last. No number of Kafka has more than 64 bits.
NO_NUMBERS = ["1_0", "\u0663", "1.0", str(2**63), "9" * 5_000, "0x10"]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: value[:5])
@pytest.mark.parametrize(
    "name",
    [
        "maxOffsetsPerTrigger",
        "minPartitions",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.retryIntervalMs",
        "maxGroupsPerTopic",
    ],
)
def test_S4_a_number_that_java_or_kafka_does_not_have_is_rejected(name: str, value: str) -> None:
    rejection = rejected({**BASE, name: value})
    assert f"'{name}' is '{value[:100]}" in rejection.what
    assert len(rejection.what) < 500


def test_S4_a_number_of_java_can_have_a_sign_and_zeros_in_front() -> None:
    options = stream(minPartitions=" +5 ", maxOffsetsPerTrigger="007")
    assert (options.min_tasks, options.limits.max_offsets) == (5, 7)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (f'{{"flights":{{"0":{10**31}}}}}', "a number of many digits is not between"),
        (f'{{"flights":{{"0":{2**63}}}}}', "9223372036854775808 is not between"),
        ('{"flights":{"0":' + "9" * 5_000 + "}}", "."),
        ('{"flights":{"0":1,"00":7}}', "'00' is not a partition"),
        ('{"flights":{" 1_0 ":3}}', "' 1_0 ' is not a partition"),
        ('{"flights":{"\\u0663":4}}', "'\u0663' is not a partition"),
        ('{"flights":{"2147483648":4}}', "2147483648 is not between"),
        ('{"flights":{"0":1,"0":7}}', "the name '0' is repeated"),
        ('{"flights":{"0":1},"flights":{"1":7}}', "the name 'flights' is repeated"),
        ('{"flights":{"0":true}}', "True is not a whole number"),
        ("[" * 100_000, "nested too deeply"),
    ],
    ids=lambda it: it[:30],
)
@pytest.mark.parametrize(
    "name", ["startingOffsets", "startingOffsetsByTimestamp", "endingOffsets", "endingOffsetsByTimestamp"]
)
def test_S4_json_that_no_client_can_read_is_rejected(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidOption) as e:
        parse({"kafka.bootstrap.servers": "b:9092", "subscribe": "flights", name: value}, streaming=False)
    assert f"Option '{name}' is " in e.value.what
    assert why in e.value.what
    assert len(e.value.what) < 500


@pytest.mark.parametrize(
    "value",
    [
        '{"flights":[0],"flights":[1]}',
        f'{{"flights":[{2**31}]}}',
        '{"flights":[true]}',
        '{"flights":"01"}',
        '{"flights":{"0":1}}',
        '{"flights":[]}',
        "[" * 100_000,
    ],
    ids=lambda it: it[:30],
)
def test_S4_a_list_of_partitions_that_no_client_can_read_is_rejected(value: str) -> None:
    rejection = rejected({**{name: it for name, it in BASE.items() if name != "subscribe"}, "assign": value})
    assert "Option 'assign' is " in rejection.what
    assert "which is not a JSON object of partitions" in rejection.what


@pytest.mark.parametrize(
    "value",
    ['{"flights":{"0":"skip","00":"fail"}}', '{"flights":"skip","flights":"fail"}', '{"flights":{"\u0663":"skip"}}'],
)
def test_S7_a_policy_for_one_partition_is_given_once(value: str) -> None:
    assert "Option 'onDataLoss' is " in rejected({**BASE, "onDataLoss": value}).what


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({**BASE, "Subscribe": "x"}, "Options 'subscribe' and 'Subscribe' are the same option. Set only one of them."),
        (
            {**BASE, "kafka.client.rack": "x", "kafka.Client.Rack": "x"},
            "Options 'kafka.client.rack' and 'kafka.Client.Rack'",
        ),
        ({**BASE, "subscrib": "x"}, "Option 'subscrib' is unknown. Did you mean 'subscribe'?"),
        ({**BASE, "startingtimestmp": "x"}, "Option 'startingtimestmp' is unknown. Did you mean 'startingTimestamp'?"),
        ({**BASE, "startingPosition": "LATEST"}, "Option 'startingPosition' is unknown"),
        ({**BASE, "bootstrap": "x"}, "Option 'bootstrap' is unknown. Names of Kafka settings start with 'kafka.'."),
        ({**BASE, "path": "/data"}, "load('/data') has a path, but topics have no path."),
        ({**BASE, "kafka.sesion.timeout.ms": "1"}, "Did you mean 'kafka.session.timeout.ms'?"),
        ({**BASE, "kafka.enable.auto.commit": "true"}, "Option 'kafka.enable.auto.commit' is not supported"),
        ({**BASE, "kafka.auto.offset.reset": "latest"}, "Option 'kafka.auto.offset.reset' is not supported"),
    ],
)
def test_S4_unknown_and_forbidden_options_are_rejected_and_named(options: dict[str, str], what: str) -> None:
    assert what in str(rejected(options))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"subscribe": "flights"}, "Option 'group.id' is missing"),
        ({**BASE, "group.id": ""}, "Option 'group.id' is missing"),
        ({**BASE, "kafka.group.id": "other"}, "Options 'group.id' ('airline') and 'kafka.group.id' ('other') differ"),
        (WITHOUT_SUBSCRIBE, "No topics to read are set"),
        ({**BASE, "subscribe": " , "}, "names no topics"),
        ({**BASE, "assign": '{"flights":[0]}'}, "Options 'subscribe', 'assign' exclude each other"),
        ({**WITHOUT_SUBSCRIBE, "subscribePattern": "fl("}, "is not a regular expression"),
        ({**WITHOUT_SUBSCRIBE, "subscribePattern": "a{99999999999}"}, "is not a regular expression"),
        ({**WITHOUT_SUBSCRIBE, "subscribePattern": "(" * 9_000 + ")" * 9_000}, "is not a regular expression"),
        ({**WITHOUT_SUBSCRIBE, "subscribePattern": " "}, "Option 'subscribePattern' is ' ', which is empty"),
        ({**WITHOUT_SUBSCRIBE, "assign": "flights"}, "not a JSON object of partitions"),
        ({**WITHOUT_SUBSCRIBE, "assign": '{"flights":[-1]}'}, "not a JSON object of partitions"),
        ({**WITHOUT_SUBSCRIBE, "assign": "{}"}, "not a JSON object of partitions"),
        (
            {**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "is 9, which is greater than 'maxOffsetsPerTrigger'",
        ),
        (
            {**BASE, "minOffsetsPerTrigger": "9", "maxDrift": "1h"},
            "Options 'minOffsetsPerTrigger' and 'maxDrift' exclude each other",
        ),
        (
            {**BASE, "minOffsetsPerTrigger": "9", "targetBatchTime": "10s"},
            "Options 'minOffsetsPerTrigger' and 'targetBatchTime' exclude each other",
        ),
        (
            {**BASE, "leaseTimeout": "10s", "targetBatchTime": "10s"},
            "Option 'targetBatchTime' is 10s, which is not less than the lease of a batch (10s)",
        ),
        ({"group.id": "airline", "subscribe": "flights"}, "'kafka.bootstrap.servers' is missing"),
        ({**BASE, "group.id": "airline.streamgroups"}, "a name that streamgroups reserves"),
        ({**BASE, "group.id": "airline.streamgroups.resets"}, "a name that streamgroups reserves"),
    ],
)
def test_S4_contradictory_and_missing_options_are_rejected_and_named(options: dict[str, str], what: str) -> None:
    assert what in rejected(options).what


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_S4_a_stream_has_no_end(name: str) -> None:
    assert str(rejected({**BASE, name: "5"})) == (
        f"Option '{name}' is not supported in streaming reads. It applies to spark.read."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("membership", "exclusive"),
        ("onRestart", "group"),
        ("leaseTimeout", "1h"),
        ("historyDir", "/history"),
        ("stateLocation", "/state"),
        ("emitEvery", "10 records"),
        ("partitionIdleTimeout", "1m"),
        ("maxDrift", "1h"),
        ("targetBatchTime", "10s"),
    ],
)
def test_W17_options_of_streams_have_no_effect_in_batch_reads(name: str, value: str) -> None:
    assert parse({**BASE, name: value}, streaming=True).ignored == ()
    assert parse({**BASE, name: value}, streaming=False).ignored == (name,)


def test_W15_markers_are_left_out_of_batch_reads_too() -> None:
    options = batch(watermarkHeader="until_ms")
    assert (options.watermark_header, options.ignored) == ("until_ms", ())


def test_W17_options_of_streams_are_checked_in_batch_reads_too() -> None:
    assert "Option 'membership' is 'mine'" in str(rejected({**BASE, "membership": "mine"}, streaming=False))


def test_S10_states_have_a_location_that_hadoop_accepts() -> None:
    for location in ("file:states", "file:./states"):
        assert str(rejected({**BASE, "stateLocation": location})) == (
            "Option 'stateLocation' has a relative path after the scheme 'file:'. Begin the path with a slash, as in file:/PATH, "
            "or write a path without a scheme; a relative one begins with './'."
        )
    assert str(rejected({**BASE, "stateLocation": "file://data/states"})) == (
        "Option 'stateLocation' has a host after 'file://', but a file has none. Write file:/PATH, or the path alone."
    )
    assert parse({**BASE, "stateLocation": "file:/states"}, streaming=True).ignored == ()


def test_S8_who_joins_no_group_cannot_leave_it() -> None:
    options = {**BASE, "assign": '{"flights":[0]}', "leaseTimeout": "15m"}
    del options["subscribe"]
    assert str(rejected(options)) == (
        "Options 'assign' and 'leaseTimeout' exclude each other: with 'assign' a query joins no group that it could leave. "
        "Use 'subscribe', or leave 'leaseTimeout' out."
    )
    assert parse(BASE, streaming=True).lease_timeout_ms is LeaseWord.DEFAULT


def test_S4_a_batch_read_needs_no_group_and_ignores_limits_per_trigger() -> None:
    options = parse(
        {"kafka.bootstrap.servers": "broker:9092", "subscribe": "flights", "maxOffsetsPerTrigger": "5"}, streaming=False
    )
    assert options.group_id is None


def test_S4_options_without_effect_are_reported_in_one_list() -> None:
    options = {**BASE, "groupIdPrefix": "ours", "maxOffsetsPerTrigger": "5", "kafka.max.poll.records": "9"}
    assert parse(options, streaming=True).ignored == ("groupIdPrefix", "kafka.max.poll.records")
    in_batch = ("maxOffsetsPerTrigger", "groupIdPrefix", "kafka.max.poll.records")
    assert parse(options, streaming=False).ignored == in_batch
    assert parse(BASE, streaming=True).ignored == ()


def test_S4_a_prefix_names_a_batch_read_without_a_group() -> None:
    unnamed = {name: value for name, value in BASE.items() if name != "group.id"}
    options = parse({**unnamed, "groupIdPrefix": "ours"}, streaming=False)
    assert (options.group_id, options.group_id_prefix, options.ignored) == (None, "ours", ())


def test_S4_kafka_group_id_is_the_group_too() -> None:
    options = {**{n: v for n, v in BASE.items() if n != "group.id"}, "kafka.group.id": "airline"}
    assert parse(options, streaming=True).group_id == "airline"
    assert parse({**options, "group.id": "airline"}, streaming=True).group_id == "airline"


def test_S4_the_input_can_be_given_in_three_ways() -> None:
    assigned = parse({**WITHOUT_SUBSCRIBE, "assign": '{"flights":[1,0]}'}, streaming=True).subscription
    assert assigned == Partitions((P0, P1))
    pattern = parse({**WITHOUT_SUBSCRIBE, "subscribePattern": " flights-.* "}, streaming=True).subscription
    assert isinstance(pattern, Pattern)
    assert pattern.regex.pattern == "flights-.*"


def test_S5_an_exclusive_query_starts_from_its_checkpoint_by_default() -> None:
    assert stream(membership="exclusive").on_restart is OnRestart.CHECKPOINT
    assert stream(membership="exclusive", onRestart="group").on_restart is OnRestart.GROUP


OFFSETS, TIMES = '{"flights":{"0":5,"1":-2}}', '{"flights":{"0":7,"1":8}}'


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Positions(TrimHorizon())),
        ({"startingOffsets": "latest"}, Positions(Latest())),
        ({"startingOffsets": OFFSETS}, Positions(None, {P0: AtOffset(5), P1: TrimHorizon()})),
        ({"startingOffsets": '{"flights":{"0":-1}}'}, Positions(None, {P0: Latest()})),
        (
            {"startingOffsetsByTimestamp": TIMES, "startingOffsets": OFFSETS},
            Positions(None, {P0: AtTime(7), P1: AtTime(8)}),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": TIMES, "startingOffsets": OFFSETS},
            Positions(AtTime(9)),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "LATEST"},
            Positions(AtTime(9), when_no_record_matches=LENIENT),
        ),
        ({"startingTimestamp": "1970-01-01T00:00:00.009Z"}, Positions(AtTime(9))),
    ],
)
def test_S4_where_to_start_has_spark_s_precedence(options: dict[str, str], starting: Positions) -> None:
    assert stream(**options).starting == starting


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({"endingOffsets": '{"flights":{"0":5,"1":-1}}'}, Positions(None, {P0: AtOffset(5), P1: Latest()})),
        (
            {"endingOffsetsByTimestamp": TIMES, "endingOffsets": "latest"},
            Positions(None, {P0: AtTime(7), P1: AtTime(8)}, LENIENT),
        ),
        (
            {"endingTimestamp": "9", "endingOffsetsByTimestamp": TIMES},
            Positions(AtTime(9), when_no_record_matches=LENIENT),
        ),
    ],
)
def test_S4_where_to_end_has_spark_s_precedence(options: dict[str, str], ending: Positions) -> None:
    assert batch(**options).ending == ending


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"flights":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"flights":{"0":-2}}'},
    ],
)
def test_S4_a_batch_read_that_finds_nothing_is_rejected(options: dict[str, str]) -> None:
    assert "a batch query reads no records" in rejected({**BASE, **options}, streaming=False).what


def test_a_position_is_one_for_all_or_for_each() -> None:
    position: Position = stream(startingOffsets="latest").starting.of(P0)
    assert position == Latest()


SECRET = "hunter2-s3cr3t"
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="ann" password="{SECRET}";',
}


def test_P3_secrets_are_not_printed_and_reach_the_workers() -> None:
    options = parse({**BASE, **LOGIN}, streaming=True)
    assert SECRET not in repr(options)
    assert SECRET not in str(options)
    assert pickle.loads(pickle.dumps(options)).client.for_admin()["sasl.password"] == SECRET


@pytest.mark.parametrize(
    "mistake",
    [
        {"kafka.sasl.pasword": SECRET},
        {"kafka.sasl.password": SECRET, "kafka.sasl.username": "bob"},
        {"kafka.sasl.mechanism": f"PLAIN{SECRET}"},
        {"kafka.security.protocol": "SASL_SSL", "kafka.ssl.key.password": SECRET, "kafka.ssl.key.location": "no.pem"},
        {"kafka.bootstrap.servers": f"ann:{SECRET}@broker:9092"},
        {"kafka.sasl.jaas.config": f'required password="{SECRET}'},
    ],
)
def test_P3_no_error_prints_a_secret(mistake: dict[str, str]) -> None:
    with pytest.raises(InvalidOption) as rejection:
        parse({**BASE, **LOGIN, **mistake}, streaming=True)
    chain: BaseException | None = rejection.value
    while chain is not None:
        assert SECRET not in str(chain)
        chain = chain.__cause__ or chain.__context__


def test_a_target_is_compared_with_the_default_lease_too() -> None:
    short = {"kafka.max.poll.interval.ms": "10000", "kafka.session.timeout.ms": "6000"}
    assert "the lease of a batch (2m)" in rejected({**BASE, **short, "targetBatchTime": "3m"}).what
    assert "the lease of a batch (1h)" in rejected({**BASE, "targetBatchTime": "2h"}).what
    alone = parse({**BASE, "targetBatchTime": "2h", "membership": "exclusive"}, streaming=True)
    assert alone.limits.target_batch_ms == 7_200_000
    without = parse({**BASE, "targetBatchTime": "2h", "leaseTimeout": "off"}, streaming=True)
    assert without.limits.target_batch_ms == 7_200_000


@pytest.mark.parametrize("value", ['{"Flights":"skip"}', '{"flights":"skip","orders":{"0":"earliest"}}'])
def test_a_policy_for_a_topic_that_is_not_read_is_rejected(value: str) -> None:
    assert "which the query does not read" in rejected({**BASE, "onDataLoss": value}).what
    pattern = {name: it for name, it in BASE.items() if name != "subscribe"} | {"subscribePattern": ".*"}
    assert parse({**pattern, "onDataLoss": value}, streaming=True).on_data_loss.by_topic


def test_a_group_with_a_space_at_its_end_is_rejected() -> None:
    assert "begins or ends with a space" in rejected({**BASE, "group.id": "board "}).what
