"""The faults of the cluster and of its other users: rebalance storms, foreign transactions, retention, expiry, unclean
elections, revoked permissions.

``campaign.faults`` injects them. A fault has a part while a process waits at its point, and a part after the process has left it. Each one
proves that it happened, or fails the campaign. Source: SEMANTICS S1, S4, S7, F5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from integration_tests.campaign.compaction import COMPACTION, Compactions
from integration_tests.campaign.credentials import Credentials
from integration_tests.campaign.deletions import Deletions, with_gaps
from integration_tests.campaign.expiry import Expiry
from integration_tests.campaign.fault import Fault
from integration_tests.campaign.foreign_transactions import ForeignTransactions
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.members import CampaignMember, all_are_up
from integration_tests.campaign.network_faults import is_of_network
from integration_tests.campaign.recreation import Recreations
from integration_tests.campaign.rotation import ROTATION, Rotation
from integration_tests.campaign.storms import Storms, Visitor
from integration_tests.campaign.unclean_elections import UNCLEAN_ELECTION, Paused, UncleanElections
from integration_tests.campaign.verdict import Verdict
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.history.events import Gap
from integration_tests.history.outputs_read import now_ms
from integration_tests.secured_brokers import Listeners
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.waits import wait_until

#: On a busy machine a query starts in minutes.
_STARTED_S = 300.0


def options_of(victims: Collection[str]) -> dict[str, str]:
    """The options of the source that faults need.

    >>> options_of({"retention"})
    {'onDataLoss': 'skip'}

    Raises:
        ValueError: if there are two kinds of gaps: Kafka deletes the recorded gaps with a topic, and the verdict compares those of one
            kind. And if queries with a rotated password connect by
            a proxy: their connection has the address of the broker.
    """
    exclusive = sorted({"retention", "topic-recreated", COMPACTION, UNCLEAN_ELECTION} & {*victims})
    if len(exclusive) > 1:
        raise ValueError(f"{' and '.join(exclusive)} need a campaign each")
    if ROTATION in victims and any(map(is_of_network, victims)):
        raise ValueError(f"{ROTATION} and faults of the network need a campaign each")
    options: dict[str, str] = {}
    if "topic-recreated" in victims:
        options["onDataLoss"] = "earliest"
    if "retention" in victims or UNCLEAN_ELECTION in victims:
        options["onDataLoss"] = "skip"
    if "transactions" in victims or "hanging" in victims:
        options["kafka.isolation.level"] = "read_committed"
    return options


@dataclass(frozen=True, slots=True)
class Group:
    """The group of a campaign.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic.
        protocol: its protocol.
        output: their output topic; empty for other sinks.
        directory: the directory of their logs.
        committed: returns the committed offsets.
        ends: returns the end offsets.
    """

    bootstrap: str
    group: str
    topic: str
    protocol: str
    output: str
    directory: Path
    committed: Callable[[], Mapping[int, int]]
    ends: Callable[[], Mapping[int, int]]


class ClusterFaults:
    """Injects the faults of a cluster into one campaign.

    Args:
        of: the group.
        members: its members.
        kafka: the broker; only the expiry needs it.
        history: the history of the campaign.
        paused: pauses the producer.
    """

    def __init__(
        self,
        of: Group,
        members: Sequence[CampaignMember],
        kafka: EmbeddedKafka | None,
        history: CampaignHistory,
        paused: Paused,
    ) -> None:
        self._of, self._members, self._history, self._paused = of, members, history, paused
        self.recreations = Recreations(of.bootstrap, of.group, of.topic, of.committed, of.ends, self._see_to_all)
        new_visitor = partial(Visitor, of.bootstrap, of.group, of.topic, of.protocol)
        self.storms = Storms(new_visitor, self._see_to_all)
        self.transactions = ForeignTransactions(of.bootstrap, of.topic)
        self.compactions = Compactions(of.bootstrap, of.topic, members, of.committed, of.ends, history.inputs.places)
        self.deletions = Deletions(of.bootstrap, of.group, of.topic, members, of.committed, of.ends)
        self.expiry = (
            Expiry(kafka, of.directory, of.group, members, of.committed, self._see_to_all, of.output)
            if kafka is not None
            else None
        )
        self.elections = (
            UncleanElections(kafka, of.group, of.topic, members, of.committed, of.ends, self._see_to_all)
            if kafka is not None
            else None
        )
        self.credentials: Credentials | None = None
        self.rotation: Rotation | None = None

    def secure(self, listeners: Listeners, rotation: Rotation | None) -> None:
        """Permits the members to use what they need, before they start.

        Args:
            listeners: the broker.
            rotation: their connection, if its password is changed.
        """
        of = self._of
        self.rotation = rotation
        self.credentials = Credentials(
            listeners, of.group, of.topic, of.output, self._members, of.committed, self._see_to_all
        )

    def faults(self) -> dict[str, Fault]:
        """The faults by their names."""

        def wait_until_recorded(_: str, __: CampaignMember) -> None:
            self._see_to_all()
            self.deletions.wait_until_recorded()

        found = {
            "storm": Fault(finish=lambda _, __: self.storms.storm()),
            "duplicate-member": Fault(finish=lambda _, member: self.storms.duplicate(member.name)),
            "transactions": Fault(lambda _, __: self.transactions.abort()),
            "hanging": Fault(finish=lambda _, __: self.transactions.hang()),
            COMPACTION: Fault(lambda _, __: self.compactions.compact()),
            "retention": Fault(lambda _, __: self.deletions.delete(), wait_until_recorded),
            "credentials": Fault(finish=self._revoke),
            ROTATION: Fault(finish=self._rotate),
            "topic-recreated": Fault(finish=lambda _, __: self.recreations.recreate(self._paused, self._history)),
            UNCLEAN_ELECTION: Fault(finish=self._elect),
            "expiry": Fault(lambda _, __: self._expiry().kill_all(), lambda point, _: self._expiry().expire(point)),
        }
        return {name: replace(it, prepare=self._wait_for_positions) for name, it in found.items()}

    def _wait_for_positions(self) -> None:
        """Waits until the group has positions of all partitions."""
        wait_until(
            lambda: self._see_to_all() and len(self._of.committed()) >= PARTITIONS,
            f"group {self._of.group} has committed offsets of all partitions",
            _STARTED_S,
        )

    def _elect(self, _: str, __: CampaignMember) -> None:
        assert self.elections is not None, "an election needs the brokers of the campaign"
        self.elections.elect(self._paused, self._history)

    def _revoke(self, _: str, __: CampaignMember) -> None:
        assert self.credentials is not None, "the queries of this campaign do not log in"
        self.credentials.revoke()

    def _rotate(self, _: str, __: CampaignMember) -> None:
        assert self.rotation is not None, "the queries of this campaign have no connection"
        self.rotation.rotate(self._members, self._of.committed, self._see_to_all)

    def judge(self, verdict: Verdict, arrived: Sequence[tuple[int, str]]) -> Verdict:
        """The verdict with the recorded gaps and the compacted records, which become events of the history.

        Args:
            verdict: the verdict without gaps.
            arrived: (partition, value) of the output.
        """
        gaps = self.deletions.recorded() if self.deletions.done else []
        if gaps:
            # The gaps of tasks are not in the histories of members.
            self._history.record(Gap(now_ms(), "reader", self._of.group, tuple(gaps)))
        verdict, removed = self.compactions.judge(verdict, arrived)
        if removed:
            self._history.record(Gap(now_ms(), "reader", self._of.group, tuple(removed)))
        return with_gaps(verdict, arrived, self._history.inputs.places, gaps, self.deletions.done)

    def __str__(self) -> str:
        expired, permissions, rotation = self.expiry, self.credentials, self.rotation
        return (
            f"{self.storms.n_rebalances} rebalances with visitors, {self.transactions.n_aborted} records of aborted transactions, "
            f"{self.transactions.hung_s:.0f} s with a hanging transaction, {len(self.deletions.done)} deletions past a position, "
            f"{len(self.compactions.removed)} available records that compactions have removed, "
            f"{self.recreations.n_noticed} partitions of a new topic, "
            f"{sum(map(len, self.elections.done.values())) if self.elections else 0} truncated partitions, "
            + (
                f"{expired.n_expired} expiries with {expired.n_ids} transactional ids, {expired.n_producers} producer ids and {expired.n_remedies} commands"
                if expired
                else "no expiry"
            )
            + (f", {permissions.n_revoked} revocations with {permissions.n_errors} errors" if permissions else "")
            + (f", {rotation.n_rotations} new passwords with {rotation.n_errors} failed queries" if rotation else "")
        )

    def _see_to_all(self) -> bool:
        return all_are_up(self._members)

    def _expiry(self) -> Expiry:
        assert self.expiry is not None, "the expiry needs the broker of the campaign"
        return self.expiry
