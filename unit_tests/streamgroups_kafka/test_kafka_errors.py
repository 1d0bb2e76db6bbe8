"""Kafka's error codes as ours, and the meaning of a rejected commit."""

from __future__ import annotations

import pickle
import re

import pytest
from confluent_kafka import KafkaError

from streamgroups.errors import (
    BrokerUnreachable,
    DataLoss,
    FencedMember,
    GroupRejected,
    InvalidOption,
    LoginRejected,
    NotAuthorized,
    RecordRejected,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups_kafka.client.error_codes import BROKER_REMOVED
from streamgroups_kafka.client.errors import CommitVerdict, commit_verdict, to_streamgroups_error
from streamgroups_kafka.client.missing_acls import WRITE, Operations

RETRY, FENCED, FATAL = CommitVerdict.RETRY_WHILE_OWNED, CommitVerdict.FENCED, CommitVerdict.FATAL
EVERY_CODE = sorted(
    name
    for name in dir(KafkaError)
    if isinstance(getattr(KafkaError, name), int) and name.upper() == name and name != "NO_ERROR"
)


def _kafka(name: str, *args: object) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), *args)


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (
            BrokerUnreachable,
            "_ALL_BROKERS_DOWN _TRANSPORT _TIMED_OUT _RESOLVE REQUEST_TIMED_OUT NOT_COORDINATOR",
        ),
        (BrokerUnreachable, "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION"),
        (BrokerUnreachable, "REBALANCE_IN_PROGRESS UNSTABLE_OFFSET_COMMIT"),
        (UnknownTopic, "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_ID TOPIC_EXCEPTION"),
        (NotAuthorized, "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"),
        (NotAuthorized, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (LoginRejected, "SASL_AUTHENTICATION_FAILED _AUTHENTICATION _SSL UNSUPPORTED_SASL_MECHANISM"),
        (FencedMember, "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID STALE_MEMBER_EPOCH"),
        (FencedMember, "FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID _MAX_POLL_EXCEEDED PRODUCER_FENCED"),
        (GroupRejected, "INCONSISTENT_GROUP_PROTOCOL GROUP_ID_NOT_FOUND NON_EMPTY_GROUP GROUP_MAX_SIZE_REACHED"),
        (GroupRejected, "UNSUPPORTED_VERSION OFFSET_METADATA_TOO_LARGE GROUP_SUBSCRIBED_TO_TOPIC"),
        (InvalidOption, "INVALID_GROUP_ID INVALID_SESSION_TIMEOUT UNSUPPORTED_ASSIGNOR INVALID_TRANSACTION_TIMEOUT"),
        (RecordRejected, "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP"),
        (DataLoss, "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET"),
    ],
)
def test_codes_become_our_errors(error: type[StreamGroupsError], names: str) -> None:
    for name in names.split():
        from_confluent = to_streamgroups_error(_kafka(name), "Reading 'flights'")
        assert type(from_confluent) is error, name
        assert from_confluent.remedy, name


@pytest.mark.parametrize(
    ("alert", "error"),
    [
        ("ssl/tls alert bad certificate: SSL alert number 42", LoginRejected),
        ("tlsv13 alert certificate required: SSL alert number 116", LoginRejected),
        ("tlsv1 alert unknown ca: SSL alert number 48", LoginRejected),
        ("sslv3 alert certificate expired: SSL alert number 45", LoginRejected),
        ("tlsv1 alert internal error: SSL alert number 80", BrokerUnreachable),
        ("alert number 1: tlsv1 alert alert unknown ca", LoginRejected),
        ("alert " * 100_000, BrokerUnreachable),
        ("no route to certificate.example", BrokerUnreachable),
    ],
)
def test_a_tls_alert_after_the_handshake(alert: str, error: type[StreamGroupsError]) -> None:
    from_confluent = to_streamgroups_error(
        _kafka("_TRANSPORT", f"Receive failed: error:0A:SSL routines::{alert}"), "Reading"
    )
    assert type(from_confluent) is error
    assert ("ssl.keystore.location" in (from_confluent.remedy or "")) is (error is LoginRejected)


@pytest.mark.parametrize("name", EVERY_CODE)
def test_every_code_keeps_its_name_and_pickles(name: str) -> None:
    from_confluent = to_streamgroups_error(_kafka(name), "Group 'orders'", group="orders", topic="flights")

    assert str(from_confluent).startswith("Group 'orders': ")
    assert f"({name}: " in str(from_confluent)
    assert "{" not in str(from_confluent)
    assert str(pickle.loads(pickle.dumps(from_confluent))) == str(from_confluent)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("GROUP_AUTHORIZATION_FAILED", "Grant Read on Group 'orders': .* --operation Read --group orders"),
        ("TOPIC_AUTHORIZATION_FAILED", "Grant Read on Topic 'flights': .* --operation Read --topic flights"),
        (
            "CLUSTER_AUTHORIZATION_FAILED",
            "Grant Describe on Cluster 'kafka-cluster': .* --operation Describe --cluster",
        ),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "Grant Write on TransactionalId 'ours': .* --operation Write --transactional-id ours",
        ),
    ],
)
def test_the_missing_permission_is_named(name: str, remedy: str) -> None:
    error = to_streamgroups_error(_kafka(name), "Reading", group="orders", topic="flights", transactional_id="ours")
    assert re.fullmatch(remedy, error.remedy)


@pytest.mark.parametrize(("operations", "operation"), [({}, "Read"), ({"operations": WRITE}, "Write")])
def test_the_error_of_an_unknown_topic_has_the_command_for_a_hidden_one(
    operations: dict[str, Operations], operation: str
) -> None:
    error = to_streamgroups_error(_kafka("UNKNOWN_TOPIC_OR_PART"), "Reading", topic="flights", **operations)
    command = f"kafka-acls.sh .* --operation {operation} --topic flights"
    assert re.search(f"If it exists: Grant {operation} on Topic 'flights': {command}$", error.remedy)


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({"group": "orders.streamgroups.time"}, "--group orders.streamgroups --resource-pattern-type prefixed"),
        ({"group": "a b"}, "--group 'a b'"),
        ({"group": "a, b"}, "--group 'a, b'"),
        ({}, "--group NAME"),
    ],
)
def test_the_command_names_the_group(given: dict[str, str], end: str) -> None:
    error = to_streamgroups_error(_kafka("GROUP_AUTHORIZATION_FAILED"), "Reading", **given)  # type: ignore[arg-type]
    assert error.remedy.endswith(f"--operation Read {end}")


def test_the_command_names_each_topic() -> None:
    error = to_streamgroups_error(_kafka("TOPIC_AUTHORIZATION_FAILED"), "Writing", topic="a, b", operations=WRITE)
    assert error.remedy.startswith("Grant Write on Topic 'a', Topic 'b': ")
    assert error.remedy.endswith("--operation Write --topic a --topic b")


@pytest.mark.parametrize(
    "text",
    [
        'SASL authentication error: {"status":"invalid_token"} (after 3ms in state AUTH_REQ)',
        "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception",
    ],
)
def test_a_rejected_token_names_its_provider(text: str) -> None:
    from_confluent = to_streamgroups_error(_kafka("_AUTHENTICATION", text), "Reading")
    assert type(from_confluent) is LoginRejected
    assert "Check 'kafka.sasl.oauthbearer.token.provider'" in from_confluent.remedy


def test_a_broker_that_the_cluster_has_removed_is_unreachable() -> None:
    """The controller removes a broker that does not respond. The name of the code is in newer clients only."""
    removed = KafkaError(BROKER_REMOVED)
    error = to_streamgroups_error(removed, "Reading 'flights'")
    assert (type(error), error.retriable, commit_verdict(removed)) == (BrokerUnreachable, True, RETRY)


def test_an_unknown_code_keeps_its_number_and_is_not_retriable() -> None:
    from_confluent = to_streamgroups_error(KafkaError(9999, "no known error"), "Committing")
    assert type(from_confluent) is StreamGroupsError
    assert "9999" in str(from_confluent)
    assert "no known error" in str(from_confluent)
    assert not from_confluent.retriable


def test_an_unknown_code_that_the_client_calls_retriable_is() -> None:
    assert to_streamgroups_error(KafkaError(9999, "later", False, True), "Committing").retriable


def test_the_clients_text_is_redacted() -> None:
    from_confluent = to_streamgroups_error(
        _kafka("_AUTHENTICATION", "hunter2 is wrong"), "Login", redact=lambda text: text.replace("hunter2", "***")
    )
    assert "hunter2" not in str(from_confluent)
    assert "*** is wrong" in str(from_confluent)


@pytest.mark.parametrize(
    ("verdict", "names"),
    [
        (RETRY, "ILLEGAL_GENERATION REBALANCE_IN_PROGRESS STALE_MEMBER_EPOCH"),
        (
            RETRY,
            "NOT_COORDINATOR COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE _TRANSPORT _TIMED_OUT",
        ),
        (RETRY, "REQUEST_TIMED_OUT _ALL_BROKERS_DOWN UNSTABLE_OFFSET_COMMIT _WAIT_COORD _AUTHENTICATION"),
        (FENCED, "UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH _ASSIGNMENT_LOST PRODUCER_FENCED"),
        (FATAL, "GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED OFFSET_METADATA_TOO_LARGE"),
        (FATAL, "INVALID_COMMIT_OFFSET_SIZE INVALID_GROUP_ID UNSUPPORTED_VERSION UNKNOWN"),
    ],
)
def test_the_meaning_of_a_rejected_commit(verdict: CommitVerdict, names: str) -> None:
    assert {name: commit_verdict(_kafka(name)) for name in names.split()} == dict.fromkeys(names.split(), verdict)


def test_a_fatal_error_is_not_retried() -> None:
    assert commit_verdict(KafkaError(KafkaError._TRANSPORT, "gone", True, False)) is FATAL


@pytest.mark.parametrize("name", EVERY_CODE)
def test_every_code_has_a_verdict(name: str) -> None:
    assert commit_verdict(_kafka(name)) in CommitVerdict
