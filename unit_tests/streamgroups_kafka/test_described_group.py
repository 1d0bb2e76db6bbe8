"""G17: descriptions of groups, with a timeout that is not that of librdkafka."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups_kafka.client.described_group import request_descriptions, response


def test_G17_a_group_without_a_coordinator_times_out_for_the_caller_only() -> None:
    """The request of librdkafka waits on: its own timeout would end the process when the coordinator is found."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    requested = request_descriptions(admin, ["billing"])["billing"]
    with pytest.raises(KafkaException) as raised:
        response(requested, 0.05)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert not requested.done()


def test_G17_the_error_of_a_response_is_raised() -> None:
    rejected = Future[Any]()
    rejected.set_exception(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException) as raised:
        response(rejected, 1.0)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
