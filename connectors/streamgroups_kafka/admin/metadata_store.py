"""The metadata store of a group on Kafka: metadata entries are committed offsets of auxiliary groups.

Implements :class:`streamgroups.ports.MetadataStore`. ``group_cursors`` creates one for all instances of a process,
``streamgroups_spark.source.readers`` one for a query. Its own thread owns all consumers. A commit of librdkafka has no timeout.
So a request that has not ended in time continues on this thread, and neither the caller, nor the close, nor the exit of the
process waits for it. Source: Kafka's OffsetCommit: without members, a group accepts commits of any client, as Kafka's tools use for offset resets. Consumers
read the offsets, because the admin API ends the process while a group has no coordinator (librdkafka#5040).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups.coordination.commit_parts import commit_parts
from streamgroups.errors import BrokerUnreachable, FencedMember, GroupRejected, LoginRejected, StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.retry import retrying
from streamgroups_kafka.admin.rejected_login import RejectedLogin, is_response
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.described_group import request_descriptions, response
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.job_thread import Job, JobThread
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.client.partition_conversion import committed_offsets, rows_of
from streamgroups_kafka.client.responses import raise_first, topics_of

logger = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
#: The maximum number of open consumers, one for each group.
_MAX_OPEN = 16
#: A new cluster first creates the topic of committed offsets. A new coordinator is ready within seconds.
RETRY_TIMEOUT_S = 20.0

_T = TypeVar("_T")


class KafkaMetadataStore:
    """See :class:`streamgroups.ports.MetadataStore`.

    Args:
        config: the configuration of the client.
        retry_timeout_s: how long a request is retried after transient errors, in seconds.
    """

    def __init__(self, config: ClientConfig, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
        self._config, self._timeout_s = config, min(_TIMEOUT_S, retry_timeout_s)
        self._wait_s = retry_timeout_s + _TIMEOUT_S
        self._retrying = retrying(retry_timeout_s, every_s=0.1)
        self._owner = JobThread("streamgroups-metadata")
        #: The last request that has not ended in time.
        self._overdue: Job[Any] | None = None
        self._log = client_log(config.get("bootstrap.servers"))
        self._login = RejectedLogin(config)
        self._consumers: OrderedDict[str, Consumer] = OrderedDict()

    def connect(self, *group_ids: str) -> None:
        """Opens the connections for the first requests about groups, without waiting for them."""

        def open_all() -> None:
            # The requests themselves report errors.
            with suppress(KafkaException):
                for group_id in group_ids:
                    self._consumer(group_id)

        self._owner.start(open_all)

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.MetadataStore.read`."""
        if not partitions:
            return {}

        def request() -> dict[TopicPartition, Committed]:
            return committed_offsets(self._consumer(group_id), partitions, self._timeout_s)

        return self._run(f"Reading the offsets of group '{group_id}'", group_id, request)

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        """See :meth:`streamgroups.ports.MetadataStore.write`."""
        for part in commit_parts(group_id, entries):
            self._write(group_id, part)

    def _write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        def request() -> None:
            raise_first(self._consumer(group_id).commit(offsets=rows_of(entries), asynchronous=False) or ())

        try:
            self._run(f"Committing to group '{group_id}'", group_id, request)
        except FencedMember as e:
            raise GroupRejected(
                f"Group '{group_id}' has live members, so other clients cannot commit to it.",
                remedy="Stop them first, or make sure that no other program uses this group.",
            ) from e

    def close(self) -> None:
        """Closes all consumers. It does not wait for a request that has not ended in time: the thread closes them after it."""
        is_overdue = self._overdue is not None and not self._overdue.done()
        try:
            self._owner.wait_for(self._owner.finish(lambda: self._close_but(0)), 0 if is_overdue else _TIMEOUT_S)
        except TimeoutError:
            logger.info("The clients of metadata groups are closed after a request that has not ended in time")

    def _run(self, what: str, group_id: str, request: Callable[[], _T]) -> _T:
        def once() -> _T:
            try:
                answer = request()
            except KafkaException as e:
                error = self._translated(e, what, group_id)
            else:
                self._log.succeeded()
                return answer
            if isinstance(error, BrokerUnreachable):
                self._log.failed(error.what)
            raise error

        answer = self._owner.start(lambda: self._retrying(once))
        if not answer.wait(self._wait_s):
            # A commit of librdkafka waits for its coordinator. A request that has not started must not be sent later.
            answer.reject()
            if not answer.done():
                self._overdue = answer
            raise BrokerUnreachable(
                f"{what}: no response within {self._wait_s:.0f} s.", remedy="Check the brokers.", group=group_id
            )
        result: _T = answer.result()
        return result

    def _translated(self, error: KafkaException, what: str, group_id: str) -> StreamGroupsError:
        redact, topics = self._config.redact, topics_of(error)
        found = to_streamgroups_error(error.args[0], what, group=group_id, topic=topics, redact=redact)
        if isinstance(found, BrokerUnreachable | LoginRejected) and not is_response(error.args[0]):
            judged = self._login.judged(found)
            if judged is not found:
                return judged
            specific = self._specific_error(error.args[0], group_id)
            found = to_streamgroups_error(specific, what, group=group_id, topic=topics, redact=redact)
        return found

    def _specific_error(self, error: KafkaError, group_id: str) -> KafkaError:
        """Returns the cause of a timeout: a consumer that is not authorized for its group retries until the timeout."""
        if error.code() != KafkaError._TIMED_OUT:
            return error
        admin = AdminClient(dict(self._config.for_admin()))
        try:
            response(request_descriptions(admin, [group_id])[group_id], self._timeout_s)
        except KafkaException as e:
            if e.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                rejection: KafkaError = e.args[0]
                return rejection
        return error

    def _consumer(self, group_id: str) -> Consumer:
        if group_id not in self._consumers:
            self._close_but(_MAX_OPEN - 1)
            self._consumers[group_id] = Consumer(self._config.for_offsets(group_id))
        self._consumers.move_to_end(group_id)
        return self._consumers[group_id]

    def _close_but(self, most: int) -> None:
        while len(self._consumers) > most:
            self._consumers.popitem(last=False)[1].close()
