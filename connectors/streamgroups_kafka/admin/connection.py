"""An admin connection: sends Kafka requests to the responsible brokers, and counts them.

Used by :mod:`streamgroups_kafka.admin.groups` and :mod:`streamgroups_kafka.admin.topics`. ``kafka-python`` provides the
protocol (``kafka.protocol``) and the connections (``kafka.net``). The modules here select the broker, the grouping of
requests and the meaning of errors. Source: KIP-699 (many coordinators in one request).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import kafka.errors
from confluent_kafka import KafkaError
from kafka.errors import KafkaTimeoutError

from streamgroups.errors import BrokerUnreachable, GroupRejected, LoginRejected, StreamGroupsError
from streamgroups.retry import retrying
from streamgroups_kafka.admin.connection_settings import admin_settings
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.logs import ClientLog, client_log, take_over_logs
from streamgroups_kafka.client.missing_acls import USUAL, Operations
from streamgroups_kafka.client.private_kafka_python import (
    FindCoordinatorRequest,
    KafkaConnectionManager,
    NetworkSelector,
    throttled_s,
)

_RETRY_INTERVAL_S = 0.2
_POLL_S = 0.001
#: After this time without a connection, the session determines the reason.
_RETRY_TIMEOUT_S = 0.5
#: The connection reports its timeout itself within this time.
_GRACE_S = 0.1
#: The number of groups in one request: large enough for few requests, small enough for the maximum request size of a
#: broker.
GROUPS_PER_REQUEST = 1_000

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class AdminSession:
    """Connections to the brokers of one cluster. Safe to call from any thread.

    Args:
        config: the configuration of the client.
        timeout_s: the timeout of an operation, including retries, in seconds.
        request_timeout_s: the timeout of one request, in seconds; ``None``: ``timeout_s``.
        waits_for_listener: whether brokers may be starting: then a connection without a listener is retried too.
        throttle_timeout_s: how long a request waits while a quota of the broker throttles this user, in seconds; ``None``:
            ``timeout_s``. It is sent afterwards, with its whole timeout.

    Raises:
        InvalidOption: if the configuration is invalid.
        BrokerUnreachable: if no broker responds before the timeout.
        LoginRejected: if authentication fails.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        timeout_s: float = 10.0,
        request_timeout_s: float | None = None,
        waits_for_listener: bool = True,
        throttle_timeout_s: float | None = None,
    ) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._throttle_timeout_s = timeout_s if throttle_timeout_s is None else throttle_timeout_s
        self._waits_for_listener = waits_for_listener
        #: The number of requests by name, without those of the connection (ApiVersions, SASL).
        self.requests: Counter[str] = Counter()
        settings = admin_settings(config, timeout_s=request_timeout_s or timeout_s)
        self._log = client_log(config.get("bootstrap.servers"))
        self._net = _Network(settings, self._log)
        self._manager = _CountingManager(self._net, self.requests, settings)
        self._net.start()
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        """Waits for the first connection. After a delay it gets the reason from librdkafka, which reports errors in
        more detail.
        """
        started_s = time.monotonic()
        attempts_s = _attempts_s(self._timeout_s, len(str(self._config.get("bootstrap.servers")).split(",")))
        connecting = self._manager.bootstrap_async(int(next(attempts_s) * 1000))
        diagnosis: Future[_Diagnosis] | None = None
        # Each step of a TLS handshake has a timeout of its own, so several of them can exceed that of the session.
        while time.monotonic() - started_s < self._timeout_s + _GRACE_S:
            if connecting.is_done:
                attempt_s = next(attempts_s, None)
                if (
                    connecting.succeeded()
                    or attempt_s is None
                    or not isinstance(connecting.exception, KafkaTimeoutError)
                ):
                    break
                connecting = self._manager.bootstrap_async(int(attempt_s * 1000))
            time.sleep(_POLL_S)
            if diagnosis is None and time.monotonic() - started_s > _RETRY_TIMEOUT_S:
                # In the background: it can wait for a host that does not respond, and the next attempt uses another host.
                diagnosis = _in_background(partial(_why_not, self._config, self._timeout_s, self._waits_for_listener))
            if diagnosis is not None and diagnosis.done() and diagnosis.result().is_final:
                raise diagnosis.result().reason
        if connecting.is_done and connecting.succeeded():
            return
        where = self._config.get("bootstrap.servers")
        what = f"The cluster at {where} could not be reached within {self._timeout_s:g} s"
        reason = None if diagnosis is None else diagnosis.result().reason
        if reason is None or not reason.what:
            raise self.translated(connecting.exception or KafkaTimeoutError("no response"), what)
        raise BrokerUnreachable(f"{what}. {reason.what}", remedy=reason.remedy)

    def close(self) -> None:
        """Closes all connections."""
        self._manager.close()
        self._net.close()

    def run(self, what: str, request: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Runs one operation, and retries it after transient errors until the timeout.

        Args:
            what: the operation; starts the text of an error.
            request: a coroutine function that awaits :meth:`send` and similar methods.
            args: the arguments of ``request``.

        Raises:
            StreamGroupsError: the translation of the failure by :mod:`streamgroups_kafka.client.errors`.
        """
        answer: _T = retrying(self._timeout_s, every_s=_RETRY_INTERVAL_S)(lambda: self.once(what, request, *args))
        return answer

    def once(self, what: str, request: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Runs one operation once; see :meth:`run`."""
        try:
            result: _T = self._manager.run(request, *args)
            self._log.succeeded()
            return result
        except kafka.errors.KafkaError as e:
            raise self.translated(e, what) from None

    async def send(self, request: Any, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Sends one request, to any node if ``node_id`` is ``None``. The default of ``timeout_s`` is that of the session."""
        await self._find([] if node_id is None else [node_id])
        return await self._sent(request, node_id, timeout_s)

    async def send_all(self, requests: Mapping[int, Any], timeout_s: float | None = None) -> dict[int, Any]:
        """Sends one request to each of several nodes, concurrently. ``timeout_s`` as in :meth:`send`."""
        responses, failure = await self.send_each(requests, timeout_s)
        if failure is not None:
            raise failure
        return responses

    async def send_each(
        self, requests: Mapping[int, Any], timeout_s: float | None = None
    ) -> tuple[dict[int, Any], kafka.errors.KafkaError | None]:
        """As :meth:`send_all`. Returns the responses that have arrived, and the first failure of the other requests."""
        await self._find(requests)
        sent = {node_id: self._sent(request, node_id, timeout_s) for node_id, request in requests.items()}
        responses: dict[int, Any] = {}
        failures: list[kafka.errors.KafkaError] = []
        for node_id, response in sent.items():
            try:
                responses[node_id] = await response
            except kafka.errors.KafkaError as e:
                failures.append(e)
        return responses, next(iter(failures), None)

    def _sent(self, request: Any, node_id: int | None, timeout_s: float | None) -> Any:
        timeout_ms = None if timeout_s is None else int(timeout_s * 1000)
        send = partial(self._manager.send, request, node_id=node_id, request_timeout_ms=timeout_ms)
        if not self._manager.throttled_s(node_id):
            return send()
        # In a task of its own: the requests to other nodes do not wait.
        return self._net.call_soon_with_future(self._sent_later, send, node_id)

    async def _sent_later(self, send: Callable[[], Any], node_id: int | None) -> Any:
        """Sends a request when its broker accepts requests of this user again."""
        end_s = time.monotonic() + self._throttle_timeout_s
        while throttled_s := self._manager.throttled_s(node_id):
            if time.monotonic() + throttled_s > end_s:
                raise ThrottledError(throttled_s)
            await self._net.sleep(throttled_s)
        return await send()

    async def broker_ids(self) -> list[int]:
        """The ids of the brokers of the cluster. A broker that returns is one of them at once."""
        await self._manager.cluster.refresh_metadata()
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    async def _find(self, node_ids: Iterable[int]) -> None:
        """Requests the metadata if a node is not in it, such as a coordinator that has just returned.

        kafka-python requests it every five minutes only, and rejects a request to an unknown node.
        """
        if any(self._manager.cluster.broker_metadata(it) is None for it in node_ids):
            await self._manager.cluster.refresh_metadata()

    async def coordinators(
        self, group_ids: Collection[str], operations: Operations = USUAL, optional: Collection[str] = ()
    ) -> dict[int, list[str]]:
        """The groups by their coordinators, with one request for many groups (KIP-699).

        Args:
            group_ids: the groups.
            operations: the operations that the user needs, for errors.
            optional: those groups that are left out if this user may not describe them.
        """
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for portion in portions(sorted(group_ids), GROUPS_PER_REQUEST):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=portion, min_version=4)
            for found in (await self.send(request)).coordinators:
                if found.error_code == Code.GROUP_AUTHORIZATION_FAILED and found.key in optional:
                    continue
                what = f"The coordinator of group '{found.key}' could not be found"
                self.check(found.error_code, what, group=found.key, operations=operations)
                by_node[found.node_id].append(found.key)
        return by_node

    def check(
        self,
        error_code: int,
        what: str,
        *,
        group: str | None = None,
        topic: str | None = None,
        operations: Operations = USUAL,
    ) -> None:
        """Raises if a response contains an error.

        Raises:
            StreamGroupsError: the translation of the code by :mod:`streamgroups_kafka.client.errors`.
        """
        if error_code != 0:
            raise self.error(error_code, what, group=group, topic=topic, operations=operations)

    def error(
        self,
        error_code: int,
        what: str,
        *,
        group: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        operations: Operations = USUAL,
    ) -> StreamGroupsError:
        """Returns the error for an error code of a broker."""
        return to_streamgroups_error(
            KafkaError(error_code),
            what,
            group=group,
            topic=topic,
            transactional_id=transactional_id,
            operations=operations,
            redact=self._config.redact,
        )

    def translated(self, error: kafka.errors.KafkaError, what: str) -> StreamGroupsError:
        """Returns the error for a failure of a request.

        Args:
            error: the failure.
            what: the operation; starts the text.
        """
        if isinstance(error, kafka.errors.IncompatibleBrokerVersion):
            return GroupRejected(f"{what}: the broker is too old.", remedy="Use a broker of version 3.0 or newer.")
        if isinstance(error, ThrottledError):
            return BrokerUnreachable(
                f"{what}: a quota of the broker throttles this user for {error.throttled_s:.0f} s more.",
                remedy="Try again later, or raise the quota of this user or client id (kafka-configs.sh).",
            )
        code = getattr(error, "errno", None)
        if isinstance(code, int) and code > 0:
            return self.error(code, what)
        cause = self._config.redact(str(error)).strip().rstrip(".")
        return BrokerUnreachable(
            f"{what}: no broker responded ({cause}).",
            remedy=(
                "Check the address and 'security.protocol', and that the brokers' advertised listeners are reachable."
            ),
        )


class ThrottledError(kafka.errors.KafkaError):  # type: ignore[misc]
    """A quota of a broker throttles the user for longer than a request can wait.

    Args:
        throttled_s: for how long, in seconds.
    """

    def __init__(self, throttled_s: float) -> None:
        super().__init__(f"throttled for {throttled_s:.0f} s")
        self.throttled_s = throttled_s


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """Why there is no connection, with an empty text if one is possible by now; and whether that is final."""

    reason: StreamGroupsError
    is_final: bool


def _why_not(config: ClientConfig, timeout_s: float, waits_for_listener: bool) -> _Diagnosis:
    # Imported late: most commands connect at once.
    from streamgroups.doctor.cluster_checks import ClusterUnreachable
    from streamgroups_kafka.probes.cluster_probe import probe_cluster

    found = probe_cluster(config, timeout_s=timeout_s)
    if not isinstance(found, ClusterUnreachable):
        return _Diagnosis(BrokerUnreachable(""), is_final=False)
    if found.final and (tokens := config.tokens) is not None:
        # The next start has another token.
        tokens.rejected()
    error = (LoginRejected if found.final else BrokerUnreachable)(found.what, remedy=found.remedy)
    return _Diagnosis(error, found.final or (found.no_listener and not waits_for_listener))


def _in_background(job: Callable[[], _T]) -> Future[_T]:
    """Runs a job in a thread of its own."""
    done = Future[_T]()

    def run() -> None:
        try:
            done.set_result(job())
        except BaseException as e:
            done.set_exception(e)

    threading.Thread(target=run, name="streamgroups-diagnosis", daemon=True).start()
    return done


def _attempts_s(timeout_s: float, n_servers: int) -> Iterator[float]:
    """The durations of the attempts to connect, in seconds.

    kafka-python connects to one of the bootstrap servers, at random. With several of them the first attempts are short, so that
    a host that does not respond does not use the whole timeout. The last one is long, for slow handshakes.

    >>> list(_attempts_s(8.0, 3)), list(_attempts_s(8.0, 1))
    ([1.0, 1.0, 2.0, 4.0], [8.0])
    """
    yield from [timeout_s] if n_servers == 1 else [timeout_s / 8, timeout_s / 8, timeout_s / 4, timeout_s / 2]


def portions(items: list[_Item], size: int) -> Iterable[list[_Item]]:
    """Splits a list into lists of at most ``size`` items.

    >>> list(portions([1, 2, 3, 4, 5], 2))
    [[1, 2], [3, 4], [5]]
    """
    return (items[i : i + size] for i in range(0, len(items), size))


class _Network(NetworkSelector):  # type: ignore[misc]
    """Ends the TLS handshake with a host that hangs. kafka-python waits for it without a timeout, and requests wait for it too.

    With several servers it takes half of the timeout at most, so that another one is tried. The lines of its thread belong to
    the log of the cluster.
    """

    def __init__(self, settings: Mapping[str, Any], log: ClientLog) -> None:
        super().__init__(**settings)
        self._cluster_log = log
        share = 1 if len(settings["bootstrap_servers"]) == 1 else 2
        self._handshake_timeout_s = settings["request_timeout_ms"] / 1000 / share

    def run_forever(self) -> None:
        take_over_logs(self._cluster_log)
        super().run_forever()

    def wait_read(self, fileobj: Any, timeout_at: float | None = None) -> Any:
        return self._waited(super().wait_read, fileobj, timeout_at)

    def wait_write(self, fileobj: Any, timeout_at: float | None = None) -> Any:
        return self._waited(super().wait_write, fileobj, timeout_at)

    def _waited(self, wait: Callable[[Any, float | None], Any], fileobj: Any, timeout_at: float | None) -> Any:
        is_handshake = isinstance(fileobj, ssl.SSLSocket) and fileobj.version() is None
        if timeout_at is not None or not is_handshake:
            return wait(fileobj, timeout_at)
        return _closing(wait(fileobj, time.monotonic() + self._handshake_timeout_s), fileobj)


async def _closing(waiting: Any, connection: ssl.SSLSocket) -> Any:
    try:
        return await waiting
    except KafkaTimeoutError:
        connection.close()
        raise


class _CountingManager(KafkaConnectionManager):  # type: ignore[misc]
    def __init__(self, net: NetworkSelector, requests: Counter[str], settings: Mapping[str, Any]) -> None:
        self._requests = requests
        super().__init__(net, **settings)

    def throttled_s(self, node_id: int | None) -> float:
        """Returns how long a node, or each node if ``node_id`` is ``None``, accepts no request because of a quota, in seconds.

        kafka-python pauses a connection for the time in a response, and rejects each request meanwhile.
        """
        if node_id is None:
            return min((self.throttled_s(it.node_id) for it in self.cluster.brokers()), default=0.0)
        return throttled_s(self._conns.get(node_id))

    def send(self, request: Any, node_id: int | None = None, request_timeout_ms: int | None = None) -> Any:
        self._requests[type(request).__name__.removesuffix("Request")] += 1
        return super().send(request, node_id=node_id, request_timeout_ms=request_timeout_ms)
