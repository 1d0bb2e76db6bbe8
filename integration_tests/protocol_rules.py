"""The rules of a proxy that understands Kafka's framing: which requests and responses it disturbs, and how often it has done so.

Used by ``protocol_proxy`` and by the faults of campaigns. A rule selects requests by their API key. Source: Kafka's protocol guide,
which lists the API keys.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum


class ApiKey(IntEnum):
    """The requests that rules can select, with their API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68

    @property
    def title(self) -> str:
        """The name in Kafka's protocol guide.

        >>> ApiKey.ADD_PARTITIONS_TO_TXN.title
        'AddPartitionsToTxn'
        """
        return "".join(word.capitalize() for word in self.name.split("_"))

    @staticmethod
    def of(title: str) -> ApiKey:
        """The key with a name of the protocol guide.

        >>> ApiKey.of("EndTxn")
        <ApiKey.END_TXN: 26>

        Raises:
            ValueError: if no key has this name.
        """
        for key in ApiKey:
            if key.title == title:
                return key
        raise ValueError(f"'{title}' is not one of {', '.join(key.title for key in ApiKey)}")


class Action(Enum):
    """The effect of a rule.

    ``LOSE``: the broker executes the request, and the connection is closed instead of the response. ``DROP``: the same, and the
    connection stays open, so the client waits for its timeout. ``CUT``: the connection is closed before the request reaches the
    broker. ``DELAY``: the response arrives later. The order of the responses of a connection stays. ``DUPLICATE``: the broker
    receives the request twice, and the client only the first response.
    """

    LOSE = "lose"
    DROP = "drop"
    CUT = "cut"
    DELAY = "delay"
    DUPLICATE = "duplicate"

    @property
    def is_of_request(self) -> bool:
        """Whether the action is decided when the request arrives. The others are decided when its response does."""
        return self in (Action.CUT, Action.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Rule:
    """Disturbs requests, or the responses to them.

    Args:
        action: the effect.
        key: the API key; ``None``: all requests, also those without a name here.
        count: how often; ``None``: until the rule ends.
        every: only each request or response with this number, of those that the rule selects.
        delay_ms: of ``DELAY``: the additional time of the response, in milliseconds.
    """

    action: Action
    key: ApiKey | None
    count: int | None = 1
    every: int = 1
    delay_ms: int = 0


class AppliedRule:
    """A rule of a proxy, with its count.

    Args:
        rule: the rule.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        #: How often it really had its effect.
        self.done = 0
        #: How often it was chosen. A duplicate is done when its second response arrives.
        self.taken = 0
        self.seen = 0


class Rules:
    """The rules of a proxy, and the counts of all that it has done. Used by all threads of its connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._applied: list[AppliedRule] = []
        #: The number of requests by API key, as a number.
        self.requests = Counter[int]()
        #: How often each action really happened, by the API key as a number.
        self.counts = Counter[tuple[int, Action]]()

    @contextmanager
    def applying(self, rule: Rule) -> Iterator[AppliedRule]:
        """Applies a rule for the duration of the block."""
        applied = self.add(rule)
        try:
            yield applied
        finally:
            self.remove(applied)

    def add(self, rule: Rule) -> AppliedRule:
        """Applies a rule until it is removed. An earlier rule has priority."""
        applied = AppliedRule(rule)
        with self._lock:
            self._applied.append(applied)
        return applied

    def remove(self, applied: AppliedRule) -> None:
        """Ends a rule. Its counts stay."""
        with self._lock:
            self._applied.remove(applied)

    def requested(self, key: int) -> AppliedRule | None:
        """Counts a request, and returns the rule that cuts or duplicates it."""
        with self._lock:
            self.requests[key] += 1
            return self._chosen(key, is_of_request=True)

    def responded(self, key: int) -> AppliedRule | None:
        """Returns the rule for the response to a request."""
        with self._lock:
            return self._chosen(key, is_of_request=False)

    def has_happened(self, applied: AppliedRule, key: int) -> None:
        """Counts an action that was completed."""
        with self._lock:
            applied.done += 1
            self.counts[key, applied.rule.action] += 1

    def has_failed(self, applied: AppliedRule) -> None:
        """The connection has ended before the action was completed. The rule has another attempt."""
        with self._lock:
            applied.taken -= 1

    def _chosen(self, key: int, *, is_of_request: bool) -> AppliedRule | None:
        for it in self._applied:
            rule = it.rule
            if rule.action.is_of_request is not is_of_request or rule.key not in (None, key):
                continue
            if rule.count is not None and it.taken >= rule.count:
                continue
            it.seen += 1
            if it.seen % rule.every == 0:
                it.taken += 1
                return it
        return None
