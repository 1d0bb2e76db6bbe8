"""S14: the form of a program is one text for equal programs, fits the metadata of a commit, and contains no secret."""

from __future__ import annotations

from itertools import permutations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import ProgramMismatch
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.program import (
    NO_FORM,
    OnOtherProgram,
    check_program,
    form_of,
    is_committed_by,
    other_forms,
    shown_location,
)
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_sinks.postgres.sink import PostgresSink
from unit_tests.handover import handover

BRANCHES = st.lists(st.lists(st.text(max_size=300), max_size=3), max_size=3)
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
#: Kafka's limit (offset.metadata.max.bytes).
MAX_METADATA_BYTES = 4_096


@given(BRANCHES, st.lists(st.text(max_size=60), max_size=3), st.text(max_size=400))
def test_S14_a_form_of_any_names_fits_into_a_commit(
    branches: list[list[str]], operators: list[str], output: str
) -> None:
    form = form_of(branches, operators, output)
    assert len(form) <= 200
    assert form.isprintable()
    mark = CommitMark(
        False, True, TopicIdentity("c" * 22, "t" * 22), epoch=2**31, reset=AppliedReset(10**17, "f" * 15), form=form
    )
    assert CommitMark.parse(mark.encode()) == mark
    tools = ToolMark(AppliedReset(10**17, "f" * 15), form=form)
    assert ToolMark.parse(tools.encode()) == tools
    assert len(mark.encode().encode()) <= MAX_METADATA_BYTES - 500, "a state has at most 200 characters"


@pytest.mark.parametrize("character", ["a", "ü", "語", "\U0001f6eb"])
def test_S14_long_forms_that_differ_at_the_end_differ(character: str) -> None:
    one, other = (form_of([[f"windows:{character * 300}{end}"]]) for end in "xy")
    assert one != other
    assert one.startswith(f"windows:{character}")
    assert form_of([[f"windows:{character * 300}x"]]) == one


def test_S14_the_order_of_branches_does_not_count_and_that_of_a_chain_does() -> None:
    branches = [("windows:a", "windows:b"), ("dedup:ids",), ("join:paid",)]
    assert len({form_of(order, ["Aggregate", "Deduplicate"]) for order in permutations(branches)}) == 1
    assert form_of([("windows:a", "windows:b")]) != form_of([("windows:b", "windows:a")])
    assert form_of([("windows:a",)]) != form_of([("stateful:a",)]), "the kind counts"


def test_S14_unknown_forms_are_compatible() -> None:
    assert other_forms("", {P0: "none"}) == other_forms("none", {P0: ""}) == {}


def test_S14_a_program_has_committed_its_form_if_each_offset_has_it() -> None:
    own, others = (CommitMark(False, form=form).encode() for form in (NO_FORM, "windows:minutes"))
    assert is_committed_by(NO_FORM, [P0, P1], {P0: own, P1: own})
    for missing in ({P0: own}, {P0: own, P1: others}, {P0: own, P1: "by hand"}):
        assert not is_committed_by(NO_FORM, [P0, P1], missing)


def test_S14_a_program_is_live_while_no_owner_of_its_partition_is_described() -> None:
    """The group rebalances, or is stable and waits for the batch of a former owner."""
    found = handover(2)

    def check() -> None:
        forms = {P0: "", P1: "windows:minutes"}
        check_program(NO_FORM, forms, OnOtherProgram.CONTINUE, found.group.describe, is_joining=True)

    with pytest.raises(ProgramMismatch, match="Its live members are alice"):
        check()
    found.group.rebalancing = True
    assert not found.group.describe().owners
    with pytest.raises(ProgramMismatch, match="Its live members are alice"):
        check()
    found.group.rebalancing = False
    found.alice.close()
    found.bob.close()
    check()


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3://key:hunter2@bucket/board/", "s3://bucket/board"),
        ("s3://key:hunter/2@hunter2@bucket/board/", "s3://bucket/board"),
        ("s3://key:hunt]er2@bucket/board/", "s3://bucket/board"),
        ("S3A://[bucket/x#hunter2", "s3a://[bucket/x"),
        ("s3a://bucket/board?secret_key=hunter2", "s3a://bucket/board"),
        ("abfss://board@account.dfs.core.windows.net/x", "abfss://board@account.dfs.core.windows.net/x"),
        ("/data/board/", "/data/board"),
        ("/", "/"),
    ],
)
def test_S14_a_location_has_no_secret(location: str, shown: str) -> None:
    assert shown_location(location) == shown


def test_S14_outputs_have_no_secret() -> None:
    sink = PostgresSink(conninfo="postgresql://me:hunter2@db/flights", table="board.flights", ledger_table="positions")
    assert sink.output == "postgres:board.flights (ledger positions)"
    assert (
        DeltaSink(uri="s3://bucket/b", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"}).output
        == "delta:s3://bucket/b"
    )


@pytest.mark.parametrize(
    ("form", "is_named"),
    [
        ("windows:hours -> kafka:clicks", True),
        ("windows:minutes > windows:hours -> kafka:clicks", True),
        ("windows:minutes -> kafka:other", False),
        ("none", False),
        ("spark:Aggregate", False),
    ],
)
def test_C3_S14_operators_with_other_names_get_their_state_from_a_savepoint(form: str, is_named: bool) -> None:
    group = GroupDescription("clicks", "Empty")
    with pytest.raises(ProgramMismatch) as rejected:
        check_program(form, {P0: "windows:minutes -> kafka:clicks"}, OnOtherProgram.FAIL, lambda: group)
    assert ("--rename OLD=NEW" in rejected.value.remedy) == is_named
