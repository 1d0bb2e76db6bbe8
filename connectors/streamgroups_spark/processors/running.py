"""Runs a declared processor until it ends.

Called by ``streamgroups processors run``, in the main thread. :mod:`streamgroups_spark.ops.supervise` restarts a failed query.
Source: SEMANTICS P1.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.errors import GroupRejected, InvalidOption, StreamGroupsError
from streamgroups.groups.description import REMOVED_WITHIN_S
from streamgroups.processors.processor import DEFAULT_INSTANCE, Processor
from streamgroups.retry import comes_true
from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_spark.internals.active_session import session_active
from streamgroups_spark.ops.exception_causes import cause_of
from streamgroups_spark.ops.supervise import SupervisedRun, supervise
from streamgroups_spark.processors.building import processor
from streamgroups_spark.processors.run_directories import run_checkpoint
from streamgroups_spark.processors.same_topics import cluster_id_of, reject_same_topic
from streamgroups_spark.source.cluster_clients import cluster_of
from streamgroups_spark.source.source_options import parse

logger = logging.getLogger(__name__)

_AGAIN_S = 0.5
_CLIENT_ID = "kafka.client.id"


def run_processor(
    declared: Processor,
    spark: SparkSession,
    *,
    instance: str = DEFAULT_INSTANCE,
    member: int = 0,
    policy: RestartPolicy | None = None,
    is_placed: bool = False,
    stop: threading.Event | None = None,
    started: Callable[[StreamingQuery], None] | None = None,
    waits: Callable[[Failure], None] | None = None,
) -> SupervisedRun:
    """Runs a processor, and restarts it after failures. Returns when it has ended or was stopped by a signal.

    The run has a new checkpoint, unless the file sets one, and deletes it at its end.

    Args:
        declared: the processor.
        spark: the session.
        instance: see :func:`~streamgroups_spark.processors.building.processor`.
        member: see :func:`~streamgroups_spark.processors.building.processor`.
        policy: the rules for restarts.
        is_placed: whether the manager of an instance has placed this member here. An earlier run of it then ends, however
            late, and this one waits for it. Otherwise a live run of this member is an error.
        stop: another thread sets it to stop the processor.
        started: called with the query of each run.
        waits: called with the reason when no query runs: a failure before a restart, or an earlier run that is not over.

    Raises:
        InvalidOption: if the processor has no sink, or no such member.
        GroupRejected: if this member runs already, and is not placed here.
        QueryGivenUp: if the query failed permanently, or too often.
    """
    if declared.sink is None and declared.repartition is None:
        raise InvalidOption(
            f"Processor '{declared.name}' has no sink.", remedy="Add 'sink', or show its rows with --preview 20."
        )
    declared.check_member(member)
    stop = stop or threading.Event()
    earlier = _EarlierRun(declared, instance, member)
    if is_placed:
        earlier.wait(stop, (policy or RestartPolicy()).give_up_after_ms, waits or (lambda _: None))
    else:
        earlier.reject()
    prefix = f"{_client_prefix(declared, instance, member)}{platform.node()}-{os.getpid()}"
    with _checkpoint(declared, instance) as checkpoint:

        def start() -> StreamingQuery:
            reject_same_topic(declared, cluster_id_of)
            # A member that the group has not removed yet can have the name of an earlier start.
            named = _with_option(declared, _CLIENT_ID, f"{prefix}-{secrets.token_hex(2)}")
            _, writer = processor(named, spark, instance=instance, member=member, checkpoint=checkpoint)
            assert writer is not None
            # A thread of a worker has no active session.
            with session_active(spark):
                query: StreamingQuery = writer.start()
            if started is not None:
                started(query)
            return query

        return supervise(start, policy=policy, stop=stop, on_failure=waits)


@contextmanager
def _checkpoint(declared: Processor, instance: str) -> Iterator[str]:
    if declared.checkpoint is not None:
        yield declared.checkpoint
        return
    with run_checkpoint(declared.group_id(instance)) as checkpoint:
        yield checkpoint


def _with_option(declared: Processor, name: str, value: str) -> Processor:
    options = {**declared.source.options, name: value}
    return replace(declared, source=replace(declared.source, options=options))


def _client_prefix(declared: Processor, instance: str, member: int) -> str:
    return f"streamgroups-{declared.group_id(instance)}-{member}-"


class _EarlierRun:
    """An earlier run of a member, as its group shows it. Two live runs of one member would fence each other.

    Args:
        declared: the processor.
        instance: its instance.
        member: the member.
    """

    def __init__(self, declared: Processor, instance: str, member: int) -> None:
        source = declared.source
        self._group_id, self._member = declared.group_id(instance), member
        self._prefix = _client_prefix(declared, instance, member)
        topics = {"subscribe": ",".join(source.topics)} if source.repartitioned is not None else {}
        self._cluster = cluster_of(parse({**declared.source_options(instance), **topics}, streaming=True))
        self._found: list[str] = []
        self._is_reachable = False

    def reject(self) -> None:
        """Waits until the group has removed a killed run, and rejects a live one."""
        if not self._has_ended() and not comes_true(self._has_ended, REMOVED_WITHIN_S, every_s=_AGAIN_S):
            raise GroupRejected(
                f"Member {self._member} of group '{self._group_id}' runs already: {', '.join(self._found)}.",
                remedy="Stop it first. To run several members, set 'replicas', and give each run its own --member.",
                group=self._group_id,
            )

    def wait(self, stop: threading.Event, give_up_after_ms: int, waits: Callable[[Failure], None]) -> None:
        """Waits until the group has removed it, or the event is set.

        A worker whose driver is frozen keeps its members: Spark and the source continue without the driver. It stops them
        when it continues. An outage of the brokers is no end either.

        Args:
            stop: the event.
            give_up_after_ms: how long an outage may last.
            waits: called with the reason of the wait.

        Raises:
            StreamGroupsError: if the cluster rejects the login, or does not respond for this time.
        """
        last_reply_s = time.monotonic()
        while not stop.is_set():
            try:
                if self._has_ended():
                    return
                last_reply_s = time.monotonic()
                waits(Failure(f"An earlier run is still in group '{self._group_id}': {self._found[0]}."))
            except StreamGroupsError as e:
                if not e.retriable or time.monotonic() - last_reply_s > give_up_after_ms / 1_000:
                    raise
                logger.warning("The members of group %s cannot be read, and are read again: %s", self._group_id, e)
                waits(cause_of(e))
            stop.wait(_AGAIN_S)

    def _has_ended(self) -> bool:
        if not self._is_reachable:
            # It detects a rejected login, for which a request about a group only times out.
            self._cluster.check_reachable()
            self._is_reachable = True
        members = self._cluster.describe(self._group_id).members
        found = [f"{it.client_id} ({it.host})" for it in members if it.client_id.startswith(self._prefix)]
        if found and found != self._found:
            message = "Member %d of group %s is still in it: %s. Waiting until it has ended."
            logger.warning(message, self._member, self._group_id, found[0])
        self._found = found
        return not found
