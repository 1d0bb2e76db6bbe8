"""The input topics of a campaign, their producers, and what the group has read of them. Used by ``campaign.running``.

A join reads two topics. The queries of ``repartition`` write a topic in between, which a second group reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from integration_tests.campaign.computed import COMPUTED
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.targets import create, patiently
from integration_tests.campaign.turns import WINDOWS_KINDS
from integration_tests.campaign.windows import CLOSING, PARTITIONS, TOPIC_CONFIG, key_of, time_ms_of
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.reading import (
    committed_messages,
    committed_offsets,
    end_offsets,
    wait_until_no_transaction_is_open,
)

#: The beginning of the name of an input topic.
INPUT_PREFIX = "in-"
#: The beginning of the name of a record of the right topic in a history.
_RIGHT = "right "


class InputTopics:
    """The topics that the queries of a campaign read.

    Args:
        bootstrap: the broker.
        kind: one of ``campaign.turns.KINDS``.
        topic: the name of the topic, or of the left topic of a join.
        group: the group of the queries.
    """

    def __init__(self, bootstrap: str, kind: str, topic: str, group: str) -> None:
        self._bootstrap, self._kind, self._group, self.topic = bootstrap, kind, group, topic
        self._computed = COMPUTED.get(kind)
        self._has_closing = kind in WINDOWS_KINDS or (
            self._computed is not None and self._computed.delay_ms is not None
        )
        self._loads: list[tuple[Load, dict[str, Any]]] = []
        #: The right topic of a join.
        self.right = ""
        if self._computed is not None and self._computed.right_time_ms_of is not None:
            self.right = f"right-{uuid.uuid4().hex[:8]}"
        #: The topic in between, and the group that reads it.
        self.between, self.reading_group = "", ""
        if kind == "repartition":
            self.between, self.reading_group = f"between-{uuid.uuid4().hex[:8]}", f"{group}-reading"

    @property
    def names(self) -> list[str]:
        """The topics that the group reads, the left one of a join first."""
        return [self.topic, *([self.right] if self.right else [])]

    def create(self, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """Creates the topics.

        Args:
            more: more of their configuration.
        """
        has_times = self._kind in WINDOWS_KINDS or self._computed is not None
        for name in self.names:
            create(self._bootstrap, name, {**(TOPIC_CONFIG if has_times else {}), **more})

    @contextmanager
    def load(self, per_second: int, history: CampaignHistory, key: Callable[[int], str] = str) -> Iterator[None]:
        """Produces records until the end of the block.

        Args:
            per_second: the rate for each topic.
            history: has the acknowledged records.
            key: the keys of records whose keys have no meaning.
        """
        record: dict[str, Any] = {"key_of": key}
        if self._kind in WINDOWS_KINDS:
            record = {"key_of": key_of, "time_ms_of": time_ms_of}
        elif self._computed is not None:
            record = {"key_of": self._computed.key_of, "time_ms_of": self._computed.time_ms_of}
        records = [(self.topic, {**record, "on_acknowledged": history.inputs.acknowledged})]
        if self._computed is not None and self._computed.right_time_ms_of is not None:
            acknowledged = partial(history.inputs.acknowledged, prefix=_RIGHT)
            right = {**record, "time_ms_of": self._computed.right_time_ms_of, "on_acknowledged": acknowledged}
            records.append((self.right, right))
        with ExitStack() as stack:
            for name, of_topic in records:
                load = Load(self._bootstrap, name, partitions=PARTITIONS, per_second=per_second, **of_topic)
                self._loads.append((stack.enter_context(load), of_topic))
            yield

    @contextmanager
    def paused(self, *, with_new_producer: bool = False) -> Iterator[None]:
        """Produces no records for the duration of the block. See :meth:`Load.paused`."""
        with ExitStack() as stack:
            for load, _ in self._loads:
                stack.enter_context(load.paused(with_new_producer=with_new_producer))
            yield

    def close_windows(self) -> None:
        """Produces the records that close all windows, if there are any."""
        if self._has_closing:
            for name, (_, record) in zip(self.names, self._loads, strict=True):
                produce(self._bootstrap, name, PARTITIONS, partitions=PARTITIONS, first=CLOSING, **record)

    @property
    def counts(self) -> list[int]:
        """The number of records of each topic, without those that close windows."""
        return [load.count for load, _ in self._loads]

    def committed(self) -> dict[int, int]:
        """The committed offsets of the topic, by partition."""
        return patiently(partial(committed_offsets, self._bootstrap, self._group, self.topic))

    def ends(self) -> dict[int, int]:
        """The end offsets of the topic, by partition."""
        return patiently(partial(end_offsets, self._bootstrap, self.topic, PARTITIONS))

    def positions(self) -> Mapping[TopicPartition, int]:
        """The committed offsets of all topics."""
        return {
            TopicPartition(name, p): n
            for name in self.names
            for p, n in patiently(partial(committed_offsets, self._bootstrap, self._group, name)).items()
        }

    def is_all_read(self) -> bool:
        """Whether the group has read all records, and those of the topic in between are read too."""
        ends = {
            TopicPartition(name, p): n
            for name in self.names
            for p, n in patiently(partial(end_offsets, self._bootstrap, name, PARTITIONS)).items()
        }
        return ends.items() <= self.positions().items() and (not self.between or self._is_between_read())

    def _is_between_read(self) -> bool:
        wait_until_no_transaction_is_open(self._bootstrap, self.between)
        # The end offsets count the markers of transactions, which a position need not pass.
        last = {m.partition(): m.offset() or 0 for m in committed_messages(self._bootstrap, self.between)}
        read = patiently(partial(committed_offsets, self._bootstrap, self.reading_group, self.between))
        return all(p is not None and read.get(p, 0) > n for p, n in last.items())
