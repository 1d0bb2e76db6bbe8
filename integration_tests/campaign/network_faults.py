"""The faults of the network between the queries of a campaign and the brokers. Used by ``integration_tests.campaign``.

Each query connects through a proxy of its own (``integration_tests.protocol_proxy``). The other clients of a campaign connect to the
brokers directly. A fault hits the query that has reached the point. Its name has the API key, as in ``response:EndTxn``, or the
additional time of all responses, as in ``slow:2s``. The fault has happened when the proxy has counted it. Then the group must commit
offsets of all partitions again. Source: SEMANTICS F1-F3, X2-X4.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from integration_tests.campaign.fault import Fault
from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.targets import all_advance
from integration_tests.protocol_proxy import ProtocolProxy
from integration_tests.protocol_rules import Action, ApiKey, AppliedRule, Rule
from streamgroups_testkit.waits import wait_until

#: The faults of one request. ``response``: the response is lost with its connection. ``no-response``: it is lost, and the connection
#: stays open. ``cut``: the connection ends before the request arrives. ``duplicate``: the request arrives twice.
ACTIONS = {
    "response": Action.LOSE,
    "no-response": Action.DROP,
    "cut": Action.CUT,
    "duplicate": Action.DUPLICATE,
}
#: All faults. ``slow``: for a while, all responses take longer.
NETWORK_FAULTS = (*ACTIONS, "slow")
#: The additional times of responses: shorter than each timeout, and longer than those of requests, transactions' requests included.
SLOW = ("2s", "12s")
#: For how long responses take longer, in addition to this time.
_SLOW_S = 6.0
_OF_ALL = (ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR)
_OF_GROUP = {
    "classic": (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT),
    "consumer": (ApiKey.CONSUMER_GROUP_HEARTBEAT,),
}
_OF_TRANSACTIONS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
#: The requests with an effect on the broker that a second copy could repeat. A client that begins a transaction twice has fenced itself.
_REPEATABLE = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.OFFSET_COMMIT,
    ApiKey.HEARTBEAT,
)
#: A member sends them only when partitions change their owner. If it is the only member, it sends them at its start.
_OF_REBALANCES = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
#: The time in which a query sends each of its requests, and in which its group continues, also on a busy machine.
_TIMEOUT_S = 240.0


def is_of_network(fault: str) -> bool:
    """Whether a fault is one of the network.

    >>> is_of_network("cut:Fetch"), is_of_network("broker")
    (True, False)
    """
    return fault.partition(":")[0] in NETWORK_FAULTS


def variants(fault: str, sink: str, protocol: str) -> list[str]:
    """The API keys of a fault that the queries of a sink send, or its additional times.

    >>> variants("duplicate", "delta", "classic"), variants("slow", "delta", "classic")
    (['OffsetCommit', 'Heartbeat'], ['2s', '12s'])
    """
    if fault == "slow":
        return list(SLOW)
    of_sink = _OF_TRANSACTIONS if sink == "kafka" else (ApiKey.OFFSET_COMMIT,)
    keys = (*of_sink, *_OF_GROUP[protocol], *_OF_ALL)
    return [key.title for key in keys if fault != "duplicate" or key in _REPEATABLE]


def with_variants(turns: Sequence[tuple[str, str]], sink: str, protocol: str, seed: int = 1) -> list[tuple[str, str]]:
    """Adds an API key or a time to the name of each fault of the network. Each fault has each of them once before one repeats.

    Args:
        turns: points and faults.
        sink: the sink.
        protocol: the group protocol.
        seed: the seed of the order.
    """
    choose = random.Random(f"{sink} {protocol} {seed}")
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    #: How often each key was used, by any fault. The faults of a short campaign have different keys.
    n_used: defaultdict[str, int] = defaultdict(int)
    named = []
    for point, fault in turns:
        if fault in NETWORK_FAULTS:
            if not waiting[fault]:
                waiting[fault] = variants(fault, sink, protocol)
                choose.shuffle(waiting[fault])
            chosen = min(waiting[fault], key=n_used.__getitem__)
            waiting[fault].remove(chosen)
            n_used[chosen] += 1
            named.append((point, f"{fault}:{chosen}"))
        else:
            named.append((point, fault))
    return named


def rule_of(fault: str) -> Rule:
    """The rule of a fault with its API key or time.

    >>> rule_of("cut:Fetch").key
    <ApiKey.FETCH: 1>
    >>> rule_of("slow:12s").delay_ms
    12000

    Raises:
        ValueError: if the name is not one of a fault of the network.
    """
    name, separator, variant = fault.partition(":")
    if name == "slow" and variant.endswith("s"):
        return Rule(Action.DELAY, None, count=None, delay_ms=round(float(variant[:-1]) * 1_000))
    if name not in ACTIONS or not separator:
        raise ValueError(f"'{fault}' is not a fault of the network with an API key or a time")
    return Rule(ACTIONS[name], ApiKey.of(variant))


class Network:
    """The connections of the queries of a campaign, and the faults of them.

    Args:
        bootstrap: the addresses of all nodes.
        names: the names of the queries.
        faults: the faults of the campaign. Without one of the network, the queries connect to the nodes directly.
        committed: returns the committed offsets of the group by partition.
    """

    def __init__(
        self,
        bootstrap: str,
        names: Sequence[str],
        faults: Sequence[str],
        committed: Callable[[], Mapping[int, int]],
    ) -> None:
        self._committed, self._stack = committed, ExitStack()
        proxied = names if any(map(is_of_network, faults)) else ()
        for fault in filter(is_of_network, faults):
            # A wrong name fails before the campaign begins.
            rule_of(fault)
        self._proxies = {it: self._stack.enter_context(ProtocolProxy(bootstrap)) for it in proxied}
        self._begun: tuple[str, str, AppliedRule] | None = None

    def close(self) -> None:
        """Closes all connections."""
        self._stack.close()

    def connected(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a query that connects through its proxy."""
        if name not in self._proxies:
            return dict(config)
        bootstrap = self._proxies[name].bootstrap
        options = {**config["options"], "kafka.bootstrap.servers": bootstrap}
        return {**config, "bootstrap": bootstrap, "place": {"bootstrap_servers": bootstrap}, "options": options}

    def faults(
        self, victims: Iterable[str], members: Mapping[str, CampaignMember], all_are_up: Callable[[], bool]
    ) -> dict[str, Fault]:
        """The faults of a campaign that are of the network.

        Args:
            victims: all its faults, with their API keys or times.
            members: the members by their names.
            all_are_up: starts the queries that are not running.
        """

        def begin(fault: str, _: int, member: CampaignMember) -> None:
            self.begin(fault, member.name)

        def finish(_: str, __: CampaignMember) -> None:
            self.finish(all_are_up, lambda name: members[name].kill())

        return {it: Fault(partial(begin, it), finish) for it in victims if is_of_network(it)}

    def begin(self, fault: str, name: str) -> None:
        """Begins a fault of a query, whose process still waits at a point."""
        self._begun = (fault, name, self._proxies[name].rules.add(rule_of(fault)))

    def finish(self, all_are_up: Callable[[], bool], restart: Callable[[str], None]) -> None:
        """Waits until the fault has happened, and until the group has then committed offsets of all partitions.

        Args:
            all_are_up: starts the queries that are not running.
            restart: ends a query by its name, so that partitions change their owner.

        Raises:
            AssertionError: if the fault does not happen in time, or the group does not continue.
        """
        assert self._begun is not None
        fault, name, applied = self._begun
        self._begun = None
        rules = self._proxies[name].rules
        try:
            if applied.rule.key in _OF_REBALANCES:
                restart(next((it for it in self._proxies if it != name), name))
            if applied.rule.count is None:
                time.sleep(_SLOW_S + applied.rule.delay_ms / 1_000)
            wait_until(
                lambda: all_are_up() and applied.done,
                f"{fault} has happened to {name}, which has sent {self.sent(name)}",
                _TIMEOUT_S,
            )
        finally:
            rules.remove(applied)
        before = self._committed()
        wait_until(
            lambda: all_are_up() and all_advance(before, self._committed()),
            f"the group commits offsets of all partitions after {fault} of {name}",
            _TIMEOUT_S,
        )

    def sent(self, name: str) -> dict[str, int]:
        """How many requests of each named API key a query has sent."""
        requests = self._proxies[name].rules.requests
        return {key.title: requests[key] for key in ApiKey if requests[key]}

    def counts(self) -> dict[str, int]:
        """How often each action has happened to an API key, in all proxies. Requests without a name have their number."""
        titles = {int(key): key.title for key in ApiKey}
        found: defaultdict[str, int] = defaultdict(int)
        for proxy in self._proxies.values():
            for (key, action), n in list(proxy.rules.counts.items()):
                found[f"{action.value} {titles.get(key, key)}"] += n
        return dict(sorted(found.items()))
