"""G17: an error of one partition, topic, group or broker in a response is no absence."""

from __future__ import annotations

import ast
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups import login_outage
from streamgroups.errors import BrokerUnreachable, LoginRejected, NotAuthorized, UnknownGroup, UnknownTopic
from streamgroups.groups.lag import PartitionError
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin import cluster as cluster_module
from streamgroups_kafka.admin import metadata_store as store_module
from streamgroups_kafka.admin import replaced_client, stored_records
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.partition_conversion import committed_offsets
from streamgroups_kafka.client.responses import REQUESTS, PartRejected, Request
from streamgroups_testkit import reading
from unit_tests.scripted_admin import CONFIG, Answers, ScriptedAdmin, metadata, scripted_session
from unit_tests.scripted_consumer import Message, ScriptedConsumer, end_of, failed_fetch, records

ROOT = Path(__file__).parent.parent.parent
P0, P1, Q0 = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("orders", 0)
DENIED, UNSTABLE = Code.TOPIC_AUTHORIZATION_FAILED, Code.UNSTABLE_OFFSET_COMMIT

# ---- the table ---------------------------------------------------------------------------------------------------------

#: Methods of confluent-kafka's clients that send no request of their own, or whose errors arrive with a poll.
LOCAL = frozenset(
    {
        *(
            "assign",
            "assignment",
            "close",
            "consumer_group_metadata",
            "incremental_assign",
            "incremental_unassign",
            "pause",
        ),
        *("begin_transaction", "purge", "seek", "resume"),
    }
)
_CLIENTS = (confluent_kafka.Consumer, confluent_kafka.Producer, AdminClient)


def _modules() -> list[ast.Module]:
    paths = sorted((ROOT / "connectors").rglob("*.py"))
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def test_G17_each_request_of_kafka_python_has_a_row() -> None:
    sent = {
        alias.name.removesuffix("Request")
        for module in _modules()
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.protocol")
        for alias in node.names
        if alias.name.endswith("Request")
    }
    assert len(sent) > 15
    assert sent - REQUESTS.keys() == set()


def test_G17_each_method_of_confluent_kafka_that_sends_a_request_has_a_row() -> None:
    methods = {name for client in _CLIENTS for name in dir(client) if not name.startswith("_")}
    called = {
        node.func.attr
        for module in _modules()
        if any(
            isinstance(it, ast.Import | ast.ImportFrom) and "confluent_kafka" in ast.unparse(it)
            for it in ast.walk(module)
        )
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    listed = {name for row in REQUESTS.values() for name in row.methods}
    assert listed <= methods
    assert (called & methods) - listed - LOCAL == set()


#: The page defines these sets once, below the table.
_SETS = {REQUESTS["OffsetFetch"].moved: "the coordinator moves", REQUESTS["ListOffsets"].moved: "the leader moves"}


def _codes(codes: frozenset[Code]) -> str:
    return ", ".join(sorted(code.name for code in codes))


def _row(name: str, row: Request) -> str:
    moved = "" if not row.moved else _SETS[row.moved]
    cells = [name, ", ".join(row.parts), _codes(row.absent), moved, row.others]
    return "".join(f"   {'*' if i == 0 else ' '} - {cell}".rstrip() + "\n" for i, cell in enumerate(cells))


def test_the_documents_contain_the_table() -> None:
    text = (ROOT / "docs" / "response-errors.rst").read_text(encoding="utf-8")
    rows = "".join(_row(name, row) for name, row in sorted(REQUESTS.items()))
    assert rows in text, rows
    for codes in _SETS:
        assert _codes(codes) in " ".join(text.replace("``", "").split()), _codes(codes)


# ---- committed offsets -------------------------------------------------------------------------------------------------


def test_G17_the_error_of_a_partition_is_raised_with_its_name() -> None:
    consumer = ScriptedConsumer(stored={P0: (1_000, "m")}, unreadable=deque([{P1: DENIED, Q0: DENIED}]))
    with pytest.raises(PartRejected, match=r"flights-1, orders-0") as raised:
        committed_offsets(consumer, [P0, P1, Q0], 1.0)  # type: ignore[arg-type]
    assert raised.value.topics == "flights, orders"
    assert committed_offsets(consumer, [P0, P1], 1.0) == {P0: Committed(1_000, "m")}  # type: ignore[arg-type]


def _committed_by_cluster(
    consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch
) -> dict[TopicPartition, Committed]:
    monkeypatch.setattr(cluster_module, "Consumer", consumer)
    return KafkaCluster(CONFIG, retry_interval_ms=1).committed("board", [P0, P1])


def _committed_by_store(consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, Committed]:
    monkeypatch.setattr(store_module, "Consumer", consumer)
    store = KafkaMetadataStore(CONFIG, retry_timeout_s=5)
    try:
        return store.read("board", [P0, P1])
    finally:
        store.close()


@pytest.mark.parametrize("read", [_committed_by_cluster, _committed_by_store])
def test_G17_committed_offsets_are_read_again_or_rejected(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {P0: (7, "m"), P1: (8, "n")}
    retried = ScriptedConsumer(stored=stored, unreadable=deque([{P1: UNSTABLE}, {P0: UNSTABLE}]))
    assert read(retried, monkeypatch) == {P0: Committed(7, "m"), P1: Committed(8, "n")}
    assert retried.names("committed") == ["committed"] * 3
    with pytest.raises(NotAuthorized, match=r"board.*flights-1.*Grant Read on Topic 'flights'"):
        read(ScriptedConsumer(stored=stored, unreadable=deque([{P1: DENIED}])), monkeypatch)


def test_G17_tools_do_not_leave_out_a_partition_with_an_error() -> None:
    answers = Answers(committed={P0: deque([(0, 5)]), P1: deque([(int(UNSTABLE), -1), (0, 6)]), Q0: deque([(0, -1)])})
    admin = KafkaGroupAdmin(scripted_session(answers))
    assert admin.committed_offsets(["board"]) == {"board": {P0: Committed(5, "at 5"), P1: Committed(6, "at 6")}}
    answers.committed[P1] = deque([(int(DENIED), -1)])
    with pytest.raises(NotAuthorized, match=r"board.*flights-1.*Grant Read on Topic 'flights'"):
        admin.committed_offsets(["board"])


class _Denying(Answers):
    """The user may not describe these groups. The second one was hidden between both requests."""

    def _FindCoordinator(self, request: Any) -> Any:
        answer = super()._FindCoordinator(request)
        for it in answer.coordinators:
            it.error_code = int(Code.GROUP_AUTHORIZATION_FAILED) if it.key == "board.streamgroups" else 0
        return answer

    def _OffsetFetch(self, request: Any) -> Any:
        answer = super()._OffsetFetch(request)
        for it in answer.groups:
            it.error_code = int(Code.GROUP_AUTHORIZATION_FAILED) if it.group_id == "late.streamgroups" else 0
        return answer


def test_G17_a_denied_group_is_left_out_only_if_it_is_optional() -> None:
    admin = KafkaGroupAdmin(scripted_session(_Denying(committed={P0: deque([(0, 5)])})))
    denied = {"board.streamgroups", "late.streamgroups"}
    assert admin.committed_offsets(["board", *denied], optional=denied) == {"board": {P0: Committed(5, "at 5")}}
    for name in denied:
        with pytest.raises(NotAuthorized, match=f"'{name}'"):
            admin.committed_offsets(["board", name], optional=["board"])


class _Deleting(Answers):
    """The first response to a deletion is lost after it has taken effect. Then the group does not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.exists = True

    def _DeleteGroups(self, request: Any) -> Any:
        results = [SimpleNamespace(group_id=g, error_code=self._code()) for g in request.groups_names]
        return SimpleNamespace(results=results)

    def _OffsetDelete(self, request: Any) -> Any:
        return SimpleNamespace(error_code=self._code(), topics=[])

    def _code(self) -> int:
        if self.exists:
            self.exists = False
            raise kafka.errors.KafkaConnectionError("socket disconnected")
        return int(Code.GROUP_ID_NOT_FOUND)


def test_O2_a_deletion_whose_response_is_lost_finds_no_group() -> None:
    answers = _Deleting()
    failures = KafkaGroupAdmin(scripted_session(answers)).delete_groups(["board"])
    assert [(g, type(e), e.group) for g, e in failures.items()] == [("board", UnknownGroup, "board")]
    assert answers.names.count("DeleteGroups") == 2
    with pytest.raises(UnknownGroup, match="The offsets of group 'board' could not be deleted: it does not exist"):
        KafkaGroupAdmin(scripted_session(_Deleting())).delete_offsets("board", [P0])


# ---- metadata ----------------------------------------------------------------------------------------------------------


def _cluster(admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch) -> KafkaCluster:
    monkeypatch.setattr(replaced_client, "AdminClient", admin)
    return KafkaCluster(CONFIG, retry_interval_ms=1)


def test_G17_a_topic_with_an_error_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"flights": 4, "orders": 2}
    responses = [metadata(there, {"orders": Code.LEADER_NOT_AVAILABLE}), metadata(there, {"gone": 3})]
    cluster = _cluster(ScriptedAdmin(metadata=responses), monkeypatch)
    assert cluster.topics() == there
    denied = _cluster(ScriptedAdmin(metadata=[metadata(there, {"orders": DENIED})]), monkeypatch)
    with pytest.raises(NotAuthorized, match="Grant Read on Topic 'orders'"):
        denied.topics()


def test_G17_the_groups_of_a_broker_that_does_not_respond_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[tuple[list[int], list[str]]] = [([Code.COORDINATOR_LOAD_IN_PROGRESS], ["a"]), ([], ["a", "b"])]
    assert _cluster(ScriptedAdmin(groups=responses), monkeypatch).group_ids() == {"a", "b"}
    monkeypatch.setattr(cluster_module, "REQUEST_TIMEOUT_S", 0.0)
    with pytest.raises(BrokerUnreachable):
        _cluster(ScriptedAdmin(groups=[([KafkaError._TRANSPORT], ["a"])]), monkeypatch).group_ids()


def test_G17_subscriptions_are_not_missing_while_the_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    member = SimpleNamespace(id="m", metadata=bytes.fromhex("0000 00000001 0001 61 ffffffff"))
    moved = [SimpleNamespace(error=KafkaError(Code.NOT_COORDINATOR), members=[])]
    admin = ScriptedAdmin(described=[moved, [SimpleNamespace(error=None, members=[member])]])
    assert _cluster(admin, monkeypatch)._subscriptions("board") == {"m": frozenset({"a"})}


def test_G17_a_topic_that_a_tool_may_not_describe_is_not_missing() -> None:
    topics = KafkaTopicAdmin(scripted_session(Answers({P0: 1}, topics={"orders": int(DENIED)})), CONFIG)
    assert list(topics.describe_topics(["flights", "no-such-topic"])) == ["flights"]
    assert list(topics.identities(["flights", "no-such-topic"])) == ["flights"]
    with pytest.raises(NotAuthorized, match="Grant Write on Topic 'orders'"):
        topics.describe_topics(["flights", "orders"], operation="Write")
    with pytest.raises(NotAuthorized, match="Grant Describe on Topic 'orders'"):
        topics.identities(["flights", "orders"])


def test_G17_a_partition_without_a_leader_is_described() -> None:
    topics = KafkaTopicAdmin(scripted_session(Answers({P0: 1, P1: -1})), CONFIG)
    assert [it.has_leader for it in topics.describe_topics(["flights"])["flights"].partitions] == [True, False]


# ---- offsets -----------------------------------------------------------------------------------------------------------

_FORMER_LEADER = sorted(REQUESTS["ListOffsets"].moved)


@pytest.mark.parametrize("code", [*_FORMER_LEADER, KafkaError._NOENT, Code.UNKNOWN_TOPIC_OR_PARTITION])
def test_G17_a_former_leader_is_replaced_by_that_of_new_metadata(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka keeps the former leader until the client requests metadata."""
    admin = ScriptedAdmin(metadata=[metadata({"flights": 2})], listed=[{P0: 3, P1: KafkaError(code)}, {P0: 3, P1: 4}])
    assert _cluster(admin, monkeypatch).end_offsets([P0, P1]) == {P0: 3, P1: 4}
    assert admin.calls == ["list_offsets", "list_topics", "list_offsets"]


@pytest.mark.parametrize("code", [KafkaError._NOENT, Code.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_partition_is_missing_if_new_metadata_do_not_contain_it(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin(metadata=[metadata({"flights": 1}, {"orders": 3})], listed=[{P1: KafkaError(code)}])
    with pytest.raises(UnknownTopic, match="no partition flights-1"):
        _cluster(admin, monkeypatch).beginning_offsets([P1])
    assert admin.calls.count("list_topics") == 3


def test_G17_a_denied_topic_is_not_missing_in_new_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin(metadata=[metadata({})], listed=[{P0: KafkaError(KafkaError._NOENT)}], denied=["flights"])
    with pytest.raises(NotAuthorized, match="Grant Read on Topic 'flights'"):
        _cluster(admin, monkeypatch).end_offsets([P0])
    assert admin.calls == ["list_offsets", "list_topics", "describe_topics"]


def test_G17_a_topic_with_an_error_in_new_metadata_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = KafkaError(KafkaError._NOENT)
    admin = ScriptedAdmin(
        metadata=[metadata({}, {"flights": Code.LEADER_NOT_AVAILABLE})], listed=[*[{P0: unknown}] * 5, {P0: 3}]
    )
    assert _cluster(admin, monkeypatch).end_offsets([P0]) == {P0: 3}


def test_G17_the_offset_for_a_time_is_not_missing_while_the_leader_moves() -> None:
    """A reset to a time would skip all records of the partition."""
    answers = Answers({P0: 1, P1: 1}, listed={P0: deque([3]), P1: deque([-Code.FENCED_LEADER_EPOCH, 9])})
    topics = KafkaTopicAdmin(scripted_session(answers), CONFIG)
    assert topics.at_times({P0: 1, P1: 1}) == {P0: StampedOffset(3, 1_000), P1: StampedOffset(9, 1_000)}


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (Answers({P0: -1}), BrokerUnreachable),
        (Answers({P1: 1}), UnknownTopic),
        (Answers(topics={"flights": int(DENIED)}), NotAuthorized),
        (Answers({P0: 1}, listed={P0: deque([-Code.NOT_LEADER_OR_FOLLOWER])}), BrokerUnreachable),
    ],
    ids=["no leader", "no partition", "denied", "former leader"],
)
def test_G17_without_a_response_the_offset_for_a_time_is_an_error(answers: Answers, error: type[Exception]) -> None:
    with pytest.raises(error, match="flights"):
        KafkaTopicAdmin(scripted_session(answers, timeout_s=0), CONFIG).at_times({P0: 1})


def test_G17_tools_show_why_bounds_are_unknown() -> None:
    gone = TopicPartition("flights", 7)
    answers = Answers(
        {P0: 1, P1: -1, TopicPartition("flights", 2): 1},
        topics={"orders": int(DENIED)},
        listed={P0: deque([3]), TopicPartition("flights", 2): deque([-Code.UNKNOWN_LEADER_EPOCH])},
    )
    topics = KafkaTopicAdmin(scripted_session(answers), CONFIG)
    assert topics.bounds([P0, P1, TopicPartition("flights", 2), gone, Q0]) == {
        P0: Bounds(3, 3),
        P1: PartitionError.NO_LEADER,
        TopicPartition("flights", 2): PartitionError.NO_LEADER,
        gone: PartitionError.NO_PARTITION,
        Q0: PartitionError.NOT_AUTHORIZED,
    }
    assert topics.newest([P0, P1, Q0]) == {P0: StampedOffset(3, 1_000)}
    answers.listed[P0] = deque([-Code.INVALID_REQUEST])
    with pytest.raises(Exception, match="flights-0"):
        topics.bounds([P0])


# ---- the tools of tests ------------------------------------------------------------------------------------------------


def test_G17_the_testkit_does_not_compare_with_less_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test would pass although the topic, or a committed offset, cannot be read."""
    consumer = ScriptedConsumer(stored={P0: (5, "")}, unreadable=deque([{P1: DENIED}]))
    responses = deque([metadata({"flights": 2}), metadata({}, {"flights": Code.LEADER_NOT_AVAILABLE})])
    monkeypatch.setattr(ScriptedConsumer, "list_topics", lambda *_, **__: responses[0])
    monkeypatch.setattr(reading, "Consumer", consumer)
    with pytest.raises(KafkaException, match="flights-1"):
        reading.committed_offsets("b", "board", "flights")
    assert reading.committed_offsets("b", "board", "flights") == {0: 5}
    consumer.fetched.extend([*records(P0, 0), failed_fetch(P0, DENIED), end_of(P0, 1)])
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        reading.read_committed("b", "flights")
    responses.popleft()
    for read in (reading.read_committed, lambda *of: reading.committed_offsets("b", "board", of[1])):
        with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
            read("b", "flights")


# ---- records -----------------------------------------------------------------------------------------------------------


def test_G17_an_error_at_the_end_offset_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failed_fetch(P0, KafkaError._TRANSPORT)
    fetched: list[Message] = [*records(P0, 0), Message(P0, 2, failure=failed.failure), *records(P0, 1), end_of(P0, 2)]
    monkeypatch.setattr(stored_records, "Consumer", ScriptedConsumer(fetched=deque(fetched)))
    assert [it.offset for it in stored_records.stored_records(CONFIG, {P0: 0}, {P0: 2})] == [0, 1]


@pytest.mark.parametrize("ends", [{P0: 2}, None])
def test_a_read_ends_if_its_login_is_rejected_for_too_long(
    monkeypatch: pytest.MonkeyPatch, ends: dict[TopicPartition, int] | None
) -> None:
    """librdkafka repeats a rejected login, and the consumer returns neither records nor an error."""
    monkeypatch.setattr(login_outage, "PERMANENT_AFTER_MS", 0)
    consumer = ScriptedConsumer(fetched=deque(records(P0, 0)))
    monkeypatch.setattr(stored_records, "Consumer", consumer)
    found = stored_records.stored_records(CONFIG, {P0: 0}, ends)
    assert next(found).offset == 0
    consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    with pytest.raises(LoginRejected, match="invalid credentials"):
        next(found)
