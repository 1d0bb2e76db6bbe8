"""G2, G11, S1-S3, X2: what a member's thread does with its consumer, without a broker: the consumer follows a script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from streamgroups import login_outage
from streamgroups.errors import (
    BrokerUnreachable,
    FencedMember,
    GroupRejected,
    LoginRejected,
    NotAuthorized,
    ProgramMismatch,
    StreamGroupsError,
    TokenUnavailable,
    UnknownTopic,
)
from streamgroups.fakes import FakeHistory
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.membership import consumer_thread as member_thread
from streamgroups_kafka.membership.consumer_thread import ConsumerOwner
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState
from unit_tests.scripted_consumer import ScriptedConsumer, Step, failed_fetch

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SHARED_MARK, EXCLUSIVE_MARK = (CommitMark(exclusive).encode() for exclusive in (False, True))
WRITTEN_MARK = CommitMark(exclusive=False, written=True).encode()


class Run:
    """A member whose consumer follows a script. ``go`` runs the whole life of its thread, here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consumer = ScriptedConsumer()
        monkeypatch.setattr(member_thread, "Consumer", self.consumer)
        self.history = FakeHistory(lambda: 0, "airline", "alice")
        self.settings = MemberSettings("airline", "alice", {}, topics=lambda: ["flights"])
        self.first: dict[TopicPartition, Owned] = {}
        self.requested_first: list[Collection[TopicPartition]] = []
        self.state = self._new_state()
        self.seen: list[object] = []

    def adapt(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.state = self._new_state()

    def _new_state(self) -> MemberState:
        # A machine that is busy for seconds is no silence here.
        return MemberState(self.settings, self.history, lambda: 0.0)

    def go(self, *steps: Step, close: bool = True) -> StreamGroupsError | None:
        """Runs the thread until it ends: after the last step, or of itself. Returns why the member failed."""
        self.consumer.then(*steps, *([self.state.close] if close else []))
        ConsumerOwner(self.settings, self._first, self.state, self.history).run()
        assert self.consumer.closed
        try:
            _ = self.state.membership
        except StreamGroupsError as e:
            return e
        return None

    def _first(self, missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        self.requested_first.append(missing)
        return {tp: self.first[tp] for tp in missing}

    def see(self, poll: Callable[[], object]) -> Step:
        """A step that remembers something, for later."""
        return lambda: self.seen.append(poll())

    def plan(self, number: int, *ranges: OffsetRange) -> Step:
        return lambda: void(self.state.plan(number, ranges))

    def finish(self, number: int) -> Step:
        return lambda: self.state.finish(number)

    def events(self, *kinds: Kind) -> list[Kind]:
        return [event.kind for event in self.history.events if event.kind in kinds]


def void(_: object) -> None:
    return None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def stored(*next_offsets: int, mark: str = SHARED_MARK) -> dict[TopicPartition, tuple[int, str]]:
    return {TopicPartition("flights", i): (n, mark) for i, n in enumerate(next_offsets)}


# ---- joining ---------------------------------------------------------------------------------------------------------


def test_S1_a_member_takes_what_the_group_has_committed_and_fetches_nothing_itself(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    assert run.go(run.consumer.assign_all(P0, P1), run.see(lambda: run.state.membership.owned)) is None
    assert run.seen == [{P0: Owned(5), P1: Owned(7)}]
    assert run.consumer.paused == {P0, P1}, "tasks fetch; the member would fetch it all a second time"
    assert run.consumer.commits == [], "what the group has is not committed again"
    assert run.requested_first == []


def test_G2_where_the_group_has_nothing_the_start_is_decided_once_and_committed(run: Run) -> None:
    run.consumer.stored = stored(5)
    run.first = {P1: Owned(3, Origin.STARTING)}
    run.go(run.consumer.assign_all(P0, P1), lambda: None)
    assert run.requested_first == [[P1]]
    assert run.consumer.commits == [{P1: (3, SHARED_MARK)}]


def test_X2_the_group_follows_a_ledger_that_is_ahead_of_it_before_anything_is_read(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.adapt(take_over=lambda result, _: {**result, P0: Owned(20, Origin.WRITTEN)})
    run.go(run.consumer.assign_all(P0, P1), run.see(lambda: run.state.membership.owned[P0].next_offset))
    assert run.seen == [20]
    assert run.consumer.commits == [{P0: (20, WRITTEN_MARK)}]


def test_S1_the_mark_of_a_member_of_the_other_kind_is_replaced(run: Run) -> None:
    run.consumer.stored = stored(5, 7, mark=EXCLUSIVE_MARK)
    run.go(run.consumer.assign_all(P0, P1), lambda: None)
    assert run.consumer.commits == [{P0: (5, SHARED_MARK), P1: (7, SHARED_MARK)}]


def test_F2_a_commit_of_another_client_receives_the_mark_of_a_tool(run: Run) -> None:
    """Otherwise the next owner could not see whether a ledger contains it."""
    run.consumer.stored = stored(5, mark="a tool's")
    run.consumer.generation = 7
    given: list[Collection[TopicPartition]] = []

    def next_reset(partitions: Collection[TopicPartition], id_: str) -> Mapping[TopicPartition, AppliedReset]:
        given.append([*partitions])
        return {tp: AppliedReset(4, id_) for tp in partitions}

    run.adapt(next_reset=next_reset)
    run.go(run.consumer.assign_all(P0), run.see(lambda: run.state.membership.owned[P0]))
    ((offset, metadata),) = [rows[P0] for rows in run.consumer.commits]
    mark = ToolMark.parse(metadata)
    assert mark is not None
    assert (offset, mark.reset.number, given) == (5, 4, [[P0]])
    assert run.seen == [Owned(5, Origin.FOREIGN, epoch=7, reset=mark.reset)]


def test_F2_the_mark_of_a_tool_stays(run: Run) -> None:
    reset = AppliedReset(4, "5f2c")
    run.consumer.stored = stored(5, mark=ToolMark(reset).encode())
    run.go(run.consumer.assign_all(P0), run.see(lambda: run.state.membership.owned[P0]))
    assert (run.seen, run.consumer.commits) == ([Owned(5, Origin.FOREIGN, reset=reset)], [])


def test_F2_a_mark_that_the_broker_rejects_is_written_by_the_next_owner(run: Run) -> None:
    run.consumer.stored = stored(5, mark="a tool's")
    run.consumer.rejections.append(KafkaError.REBALANCE_IN_PROGRESS)
    assert run.go(run.consumer.assign_all(P0), run.see(lambda: run.state.membership.owned[P0].origin)) is None
    assert (run.seen, run.consumer.commits) == ([Origin.FOREIGN], [])
    assert run.consumer.names("refused") == ["refused"]


def test_F1_an_owner_has_the_generation_of_its_assignment_and_can_confirm_it(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.consumer.generation = 7
    confirmed: list[tuple[str, Collection[TopicPartition]]] = []

    def is_owner(member_id: str, partitions: Collection[TopicPartition]) -> bool:
        confirmed.append((member_id, partitions))
        return True

    def take_over(
        text: Mapping[TopicPartition, Owned], owns: Callable[[Collection[TopicPartition]], bool]
    ) -> Mapping[TopicPartition, Owned]:
        assert {it.epoch for it in text.values()} == {7}
        assert owns([P1])
        return {tp: replace(it, epoch=9) for tp, it in text.items()}

    run.adapt(is_owner=is_owner, take_over=take_over)
    run.go(run.consumer.assign_all(P0, P1), run.see(lambda: run.state.membership.owned[P0].epoch))
    assert (confirmed, run.seen) == ([("member-1", [P1])], [9])
    # The ledger is not ahead of the group.
    assert run.consumer.commits == []


def test_an_assignment_waits_for_a_group_whose_offsets_cannot_be_read_yet(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([BrokerUnreachable("away"), None])

    def take_over(result: Mapping[TopicPartition, Owned], _: object) -> Mapping[TopicPartition, Owned]:
        if (error := next(answers)) is not None:
            raise error
        return result

    run.consumer.stored = stored(5)
    run.adapt(take_over=take_over)
    assert run.go(run.consumer.assign_all(P0), run.see(lambda: set(run.state.membership.owned))) is None
    assert run.seen == [{P0}]


def test_G17_a_partition_whose_committed_offset_cannot_be_read_is_read_again(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.consumer.unreadable.extend([{P1: KafkaError.UNSTABLE_OFFSET_COMMIT}, {P0: KafkaError.NOT_COORDINATOR}])
    assert run.go(run.consumer.assign_all(P0, P1), run.see(lambda: run.state.membership.owned)) is None
    assert run.seen == [{P0: Owned(5), P1: Owned(7)}]
    assert (run.requested_first, run.consumer.commits) == ([], [])


def test_G17_a_partition_whose_committed_offset_is_denied_fails_the_member(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.first = {P1: Owned(0, Origin.STARTING)}
    run.consumer.unreadable.append({P1: KafkaError.TOPIC_AUTHORIZATION_FAILED})
    error = run.go(run.consumer.assign_all(P0, P1))
    assert isinstance(error, NotAuthorized)
    assert "flights-1" in error.what
    assert "Grant Read on Topic 'flights'" in (error.remedy or "")
    assert (run.requested_first, run.consumer.commits) == ([], [])


def rejected_login(run: Run, text: str = "invalid credentials") -> Step:
    """librdkafka reports a rejected login by its error callback, and repeats it."""
    return lambda: void(run.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, text)))


def test_a_login_that_one_broker_rejects_is_repeated(run: Run) -> None:
    run.consumer.stored = stored(5)
    assert run.go(rejected_login(run), run.consumer.assign_all(P0), lambda: None) is None
    assert not run.state.is_login_rejected, "another broker accepts it"
    assert "invalid credentials" in run.state.last_error


@pytest.mark.parametrize("is_at_a_commit", [True, False])
def test_a_member_that_has_joined_fails_if_all_brokers_reject_its_login(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_at_a_commit: bool
) -> None:
    monkeypatch.setattr(login_outage, "PERMANENT_AFTER_MS", 0)
    rejection = LoginRejected("Group 'airline': authentication failed.")
    run.adapt(login_rejection=lambda: rejection)
    run.consumer.stored = stored(5)
    if is_at_a_commit:
        run.consumer.rejections.append(KafkaError._AUTHENTICATION)
        steps = [lambda: run.state.commit_soon({P0: 6})]
    else:
        steps = [rejected_login(run)]
    assert run.go(run.consumer.assign_all(P0), *steps, lambda: None) is rejection


def test_a_token_endpoint_that_is_away_is_no_rejection(run: Run) -> None:
    def away() -> StreamGroupsError | None:
        raise TokenUnavailable("The endpoint did not respond.")

    run.adapt(login_rejection=away)
    run.consumer.stored = stored(5)
    assert run.go(run.consumer.assign_all(P0), rejected_login(run), lambda: None) is None


def test_a_short_rejection_of_a_login_is_an_outage(run: Run) -> None:
    run.adapt(login_rejection=lambda: LoginRejected("Group 'airline': authentication failed."))
    run.consumer.stored = stored(5)
    assert run.go(run.consumer.assign_all(P0), rejected_login(run), lambda: None, lambda: None) is None
    assert run.state.is_login_rejected


@pytest.mark.parametrize("are_all", [True, False])
def test_a_join_ends_if_all_brokers_reject_its_login(run: Run, are_all: bool) -> None:
    rejection = LoginRejected("Group 'airline': authentication failed.")
    run.adapt(login_rejection=lambda: rejection if are_all else None)
    run.consumer.then(rejected_login(run))
    member = KafkaMember(run.settings, run._first, run.history)
    with pytest.raises(LoginRejected if are_all else GroupRejected):
        member.join(3_000)
    member.close()


def test_a_thread_that_exits_fails_the_member(run: Run) -> None:
    """Python ignores SystemExit in a thread. The query would read nothing, without an error."""

    def topics() -> Iterable[str]:
        raise SystemExit("no credentials")

    run.adapt(topics=topics)
    error = run.go()
    assert error is not None
    assert "failed: SystemExit: no credentials" in error.what


def test_a_pattern_without_a_topic_is_an_assignment_of_nothing(run: Run) -> None:
    run.adapt(topics=list)
    run.go(run.see(lambda: run.state.has_been_assigned))
    assert run.seen == [True]
    assert run.consumer.names("subscribe") == []


def test_a_topic_that_is_not_there_fails_a_member_at_once_and_later_only_if_it_stays_away(run: Run) -> None:
    def topics() -> Iterable[str]:
        raise UnknownTopic("no topic 'flights'", remedy="make it")

    run.adapt(topics=topics)
    assert isinstance(run.go(), UnknownTopic)

    found = iter([["flights"], *[None] * 3])

    def later() -> Iterable[str]:
        if (names := next(found)) is None:
            raise UnknownTopic("no topic 'flights'", remedy="make it")
        return names

    run.consumer.calls.clear()
    run.adapt(topics=later, refresh_ms=1)
    assert isinstance(run.go(close=False), UnknownTopic)
    assert next(found, "none") == "none"
    assert run.consumer.names("subscribe") == ["subscribe"]


def test_G12_partitions_of_the_option_assign_are_taken_without_joining(run: Run) -> None:
    run.consumer.stored = stored(5)
    run.adapt(assign=(P0,))
    run.go(run.see(lambda: run.state.membership.owned))
    assert run.seen == [{P0: Owned(5)}]
    assert run.consumer.names("subscribe", "assign") == ["assign"]
    assert run.consumer.paused == {P0}


def test_X2_who_the_member_is_to_the_broker_is_renewed_at_each_turn(run: Run) -> None:
    run.consumer.generation = 7
    run.consumer.stored = stored(5)

    def next_generation() -> None:
        run.consumer.generation = 8

    group_metadata = run.see(lambda: run.state.group_metadata)
    run.go(run.consumer.assign_all(P0), group_metadata, next_generation, group_metadata)
    assert run.seen == [
        ConsumerGroupMetadata("airline", 7, "member-1"),
        ConsumerGroupMetadata("airline", 8, "member-1"),
    ]


def test_X3_a_member_without_a_generation_has_no_group_metadata(run: Run) -> None:
    """Before it has joined, and while it joins again: a broker would accept a sink's offsets from it unchecked."""
    run.consumer.generation = -1
    run.consumer.stored = stored(5)

    def joined(generation: int) -> Step:
        return lambda: setattr(run.consumer, "generation", generation)

    group_metadata = run.see(lambda: run.state.group_metadata)
    run.go(run.consumer.assign_all(P0), group_metadata, joined(7), group_metadata, joined(-1), group_metadata)
    assert run.seen == [None, ConsumerGroupMetadata("airline", 7, "member-1"), None]


# ---- handover --------------------------------------------------------------------------------------------------------


def test_G11_what_is_revoked_is_committed_before_it_is_released(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    turns = 0

    def finish_on_the_second_turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            run.state.finish(1)

    def wait_so() -> None:
        run.consumer.while_waiting = finish_on_the_second_turn

    run.go(
        run.consumer.assign_all(P0, P1),
        run.plan(1, OffsetRange(P0, 5, 9)),
        wait_so,
        run.consumer.revoke(P0),
        run.see(lambda: set(run.state.membership.owned)),
    )
    assert run.seen == [{P1}]
    assert run.consumer.commits == [{P0: (9, SHARED_MARK)}]
    calls = run.consumer.names("commit", "incremental_unassign", "unsubscribe")
    assert calls[: calls.index("unsubscribe")] == ["commit", "incremental_unassign"]
    assert [event.ranges for event in run.history.events if event.kind is Kind.RELEASED] == [(), ()]


def test_S3_a_member_that_was_fenced_while_it_waits_for_a_batch_waits_no_longer(run: Run) -> None:
    """It was frozen. Its batch can never be committed, and it joins again after this callback only."""
    run.consumer.stored = stored(5, 7)
    run.adapt(rebalance_timeout_ms=2_000)
    now_s = 0.0
    run.state = MemberState(run.settings, run.history, lambda: now_s)

    turns = 0

    def freeze_on_the_second_turn() -> None:
        nonlocal now_s, turns
        turns += 1
        if turns == 2:
            now_s += 10
            run.consumer.rejections.append(KafkaError.UNKNOWN_MEMBER_ID)

    def wait_so() -> None:
        run.consumer.while_waiting = freeze_on_the_second_turn

    run.go(
        run.consumer.assign_all(P0, P1),
        run.plan(1, OffsetRange(P0, 5, 9)),
        wait_so,
        run.consumer.revoke(P0),
        run.see(lambda: set(run.state.membership.owned)),
    )
    assert run.seen == [set()]
    # At the deadline the batch would be abandoned by the release.
    abandoned = {event.kind: event.ranges for event in run.history.events if event.ranges}
    assert abandoned == {Kind.PLANNED: (OffsetRange(P0, 5, 9),), Kind.LOST: (OffsetRange(P0, 5, 9),)}


def test_G11_a_partition_that_no_batch_reads_goes_at_once(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.go(run.consumer.assign_all(P0, P1), run.plan(1, OffsetRange(P0, 5, 9)), run.consumer.revoke(P1))
    released = [Kind.REVOKING, Kind.RELEASED]
    assert run.events(Kind.REVOKING, Kind.RELEASED, Kind.CLOSING) == [*released, Kind.CLOSING, *released]
    assert run.consumer.commits == []


def test_G11_when_the_rebalance_allows_no_more_time_the_batch_is_abandoned(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.consumer.stored = stored(5)
    run.adapt(rebalance_timeout_ms=1)
    run.go(run.consumer.assign_all(P0), run.plan(1, OffsetRange(P0, 5, 9)), run.consumer.revoke(P0))
    assert "flights-0" in caplog.text
    assert [event.ranges for event in run.history.events if event.kind is Kind.RELEASED] == [(OffsetRange(P0, 5, 9),)]


def test_S3_what_was_lost_is_dropped_with_what_was_due(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    run.consumer.rejections.append(KafkaError.REBALANCE_IN_PROGRESS)

    def lose_and_get_back() -> None:
        run.consumer.lose(P0)()
        run.consumer.stored |= stored(20)
        run.consumer.assign_all(P0)()

    run.go(
        run.consumer.assign_all(P0, P1),
        run.plan(1, OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8)),
        run.finish(1),
        lose_and_get_back,
        run.see(lambda: run.state.membership.owned[P0].next_offset),
    )
    assert run.seen == [20]
    assert run.consumer.commits == [{P1: (8, SHARED_MARK)}], "the group would go back from 20 to 9"


@pytest.mark.parametrize(
    ("happens", "failure"), [("lose", FencedMember), ("revoke", GroupRejected)], ids=["lost", "revoked"]
)
def test_S1_an_exclusive_member_fails_when_others_get_its_partitions(
    run: Run, happens: str, failure: type[StreamGroupsError], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.consumer.stored = stored(5, mark=EXCLUSIVE_MARK)
    run.adapt(exclusive=True, has_others=lambda: True)
    monkeypatch.setattr(member_thread, "_DELETION_S", 0)
    error = run.go(run.consumer.assign_all(P0), getattr(run.consumer, happens)(P0), close=False)
    assert isinstance(error, failure)
    assert "airline" in str(error)


def test_S11_an_exclusive_member_continues_when_the_group_revokes_partitions_without_another_member(run: Run) -> None:
    """Their topic was deleted. ``fail`` of ``onDataLoss`` is the decision of the query."""
    run.consumer.stored = stored(5, 7, mark=EXCLUSIVE_MARK)
    run.adapt(exclusive=True)
    owned = run.see(lambda: set(run.state.membership.owned))
    assert run.go(run.consumer.assign_all(P0, P1), run.consumer.revoke(P1), owned) is None
    assert run.seen == [{P0}]


@pytest.mark.parametrize("deleted", [{P1}, {P0, P1}], ids=["lost", "all"])
def test_S11_an_exclusive_member_continues_when_it_loses_partitions_of_a_deleted_topic(
    run: Run, deleted: set[TopicPartition]
) -> None:
    """librdkafka reports them as lost with the classic protocol."""
    run.consumer.stored = stored(5, 7, mark=EXCLUSIVE_MARK)
    polls: list[Collection[TopicPartition]] = []

    def later(owned: Mapping[TopicPartition, Owned]) -> Collection[TopicPartition]:
        polls.append(set(owned))
        return deleted if len(polls) > 1 else ()

    run.adapt(exclusive=True, deleted=later)
    owned = run.see(lambda: set(run.state.membership.owned))
    assert run.go(run.consumer.assign_all(P0, P1), run.consumer.lose(P1), owned) is None
    assert (run.seen, polls) == ([{P0}], [{P1}, {P1}])


def test_S3_an_exclusive_member_that_loses_more_than_a_deleted_topic_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_thread, "_DELETION_S", 0)
    run.consumer.stored = stored(5, 7, mark=EXCLUSIVE_MARK)
    run.adapt(exclusive=True, deleted=lambda _: {P1})
    assert isinstance(run.go(run.consumer.assign_all(P0, P1), run.consumer.lose(P0, P1), close=False), FencedMember)


def test_S1_an_exclusive_member_fails_if_no_broker_lists_the_members(run: Run) -> None:
    def unreachable() -> bool:
        raise BrokerUnreachable("No broker responds.", remedy="Start one.")

    run.consumer.stored = stored(5, mark=EXCLUSIVE_MARK)
    run.adapt(exclusive=True, has_others=unreachable)
    assert isinstance(run.go(run.consumer.assign_all(P0), run.consumer.revoke(P0), close=False), BrokerUnreachable)


# ---- committing ------------------------------------------------------------------------------------------------------


def read_one(run: Run) -> tuple[Step, ...]:
    run.consumer.stored = stored(5, 7)
    return run.consumer.assign_all(P0, P1), run.plan(1, OffsetRange(P0, 5, 9)), run.finish(1)


def test_O6_a_commit_names_where_its_owner_began_to_read(run: Run) -> None:
    steps = read_one(run)
    run.go(*steps, run.plan(2, OffsetRange(P0, 9, 12)), run.finish(2), lambda: None)
    assert [it[P0][0] for it in run.consumer.commits] == [9, 12]
    assert run.consumer.begins == {P0: "5"}


def test_O6_the_output_of_a_ledger_counts_as_read(run: Run) -> None:
    """An earlier run was killed before its commit to the group."""
    run.consumer.stored = stored(5, 7)
    run.adapt(take_over=lambda result, _: {**result, P0: Owned(20, Origin.WRITTEN, read_from=5)})
    run.go(run.consumer.assign_all(P0, P1), lambda: None)
    assert (run.consumer.commits, run.consumer.begins) == ([{P0: (20, WRITTEN_MARK)}], {P0: "5"})


def test_S7_a_commit_has_the_leader_epoch_of_the_position(run: Run) -> None:
    steps = read_one(run)
    mark = CommitMark(False, leader_epoch=4).encode()
    run.consumer.stored = stored(5, mark=mark) | {P1: (7, SHARED_MARK)}
    run.go(*steps)
    assert run.consumer.commits == [{P0: (9, mark)}]
    assert run.consumer.leader_epochs == {P0: 4}


def test_S3_a_fenced_member_has_lost_everything_at_once(run: Run) -> None:
    run.consumer.rejections.append(KafkaError.FENCED_INSTANCE_ID)
    error = run.go(*read_one(run), run.see(lambda: run.state.membership.owned))
    assert error is None, "librdkafka joins again"
    assert run.seen == [{}], "nothing more is read of what another member reads"
    assert [(e.kind, e.detail) for e in run.history.events if e.kind is Kind.LOST] == [(Kind.LOST, "fenced")]


def test_S1_a_fenced_exclusive_member_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_thread, "_DELETION_S", 0)
    run.adapt(exclusive=True)
    steps = read_one(run)
    run.consumer.stored = stored(5, 7, mark=EXCLUSIVE_MARK)
    run.consumer.rejections.append(KafkaError.FENCED_INSTANCE_ID)
    assert isinstance(run.go(*steps, close=False), FencedMember)


@pytest.mark.parametrize(
    "code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError._TIMED_OUT]
)
def test_S2_a_commit_that_a_rebalance_delays_is_repeated(run: Run, code: int) -> None:
    run.consumer.rejections.extend([code, code])
    assert run.go(*read_one(run), lambda: None, lambda: None) is None
    assert run.consumer.names("refused", "commit") == ["refused", "refused", "commit"]
    assert run.consumer.stored[P0] == (9, SHARED_MARK)


def test_S2_what_the_broker_will_never_take_fails_the_member(run: Run) -> None:
    run.consumer.rejections.append(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert run.go(*read_one(run), close=False) is not None
    assert run.events(Kind.REJECTED) == [Kind.REJECTED]
    assert run.consumer.commits == []


def test_S2_the_most_serious_error_of_a_commit_decides(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = read_one(run)
    codes = [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.GROUP_AUTHORIZATION_FAILED]

    def commit(*, offsets: object, asynchronous: bool) -> list[object]:
        return [type("Row", (), {"error": KafkaError(code)}) for code in codes]

    monkeypatch.setattr(run.consumer, "commit", commit)
    assert isinstance(run.go(*steps, close=False), StreamGroupsError)


def test_S2_a_member_that_leaves_commits_what_is_done_and_tries_again(run: Run) -> None:
    run.consumer.stored = stored(5)
    run.consumer.rejections.append(KafkaError.REBALANCE_IN_PROGRESS)

    def end() -> None:
        run.state.finish(1)
        run.state.close()

    run.go(run.consumer.assign_all(P0), run.plan(1, OffsetRange(P0, 5, 9)), end, close=False)
    assert run.consumer.commits == [{P0: (9, SHARED_MARK)}]
    assert run.consumer.names("commit", "close") == ["commit", "close"]


def test_a_member_that_leaves_releases_its_partitions_before_it_closes_the_client(run: Run) -> None:
    run.consumer.stored = stored(5)
    run.go(run.consumer.assign_all(P0))
    calls = ["unsubscribe", "incremental_unassign", "close"]
    assert run.consumer.names(*calls) == calls


def test_a_member_that_has_failed_leaves_without_a_commit(run: Run) -> None:
    run.consumer.stored = stored(5)

    def fail() -> None:
        run.state.finish(1)
        run.state.fail(GroupRejected("no", remedy="none"))

    assert isinstance(
        run.go(run.consumer.assign_all(P0), run.plan(1, OffsetRange(P0, 5, 9)), fail, close=False), GroupRejected
    )
    assert run.consumer.commits == []


def test_X2_what_a_sink_has_committed_keeps_its_mark(run: Run) -> None:
    run.consumer.stored = {P0: (5, WRITTEN_MARK)}
    run.go(run.consumer.assign_all(P0), lambda: run.state.commit_soon({P0: 5}), lambda: None)
    assert run.consumer.commits == [{P0: (5, WRITTEN_MARK)}]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED]
)
def test_what_the_client_mends_is_remembered_and_nothing_else(run: Run, code: int) -> None:
    assert run.go(lambda: failed_fetch(P0, code)) is None
    assert run.state.last_error


def test_S11_a_topic_that_is_being_recreated_does_not_fail_the_member(run: Run) -> None:
    """The refresh of the subscription decides."""
    assert run.go(lambda: failed_fetch(P0, KafkaError.UNKNOWN_TOPIC_OR_PART)) is None


def test_what_will_not_pass_fails_the_member(run: Run) -> None:
    error = run.go(lambda: failed_fetch(None, KafkaError.GROUP_AUTHORIZATION_FAILED), close=False)
    assert error is not None
    assert "airline" in str(error)


def test_a_bug_on_the_thread_fails_the_member_with_its_message(run: Run) -> None:
    def crash() -> None:
        raise ZeroDivisionError("oops")

    error = run.go(crash, close=False)
    assert error is not None
    assert "ZeroDivisionError: oops" in str(error)
    assert run.events(Kind.CLOSED) == [Kind.CLOSED]


# ---- the program of a group ------------------------------------------------------------------------------------------

WINDOWS, PLAIN = (CommitMark(False, form=form).encode() for form in ("windows:minutes", "none"))


def test_S14_a_position_of_another_program_ends_the_member_before_it_owns_it(run: Run) -> None:
    def check(owned: Mapping[TopicPartition, Owned]) -> None:
        raise ProgramMismatch(f"It belongs to {owned[P0].form}.", remedy="")

    run.consumer.stored = stored(5, mark=WINDOWS)
    run.adapt(form="none", check_positions=check)
    failure = run.go(run.consumer.assign_all(P0), lambda: None)
    assert isinstance(failure, ProgramMismatch)
    assert "windows:minutes" in str(failure)
    assert run.consumer.commits == []
    assert Kind.ASSIGNED not in run.events(*Kind)


def test_S14_a_program_that_takes_a_group_commits_its_form_at_once(run: Run) -> None:
    run.consumer.stored = {**stored(5, 7, mark=WINDOWS), P1: (7, PLAIN)}
    run.adapt(form="none")
    run.go(run.consumer.assign_all(P0, P1), lambda: None)
    assert run.consumer.commits == [{P0: (5, PLAIN)}]


def test_S14_a_member_that_leaves_the_group_to_another_program_clears_its_form(run: Run) -> None:
    run.first = {P0: Owned(3, Origin.STARTING)}
    run.adapt(form="none")
    run.go(run.consumer.assign_all(P0), lambda: None, lambda: run.state.clear_form(), lambda: None)
    assert run.consumer.commits == [{P0: (3, PLAIN)}, {P0: (3, SHARED_MARK)}]
