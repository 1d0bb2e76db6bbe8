"""The sabotages of the campaign fit the code that they replace. A campaign that cannot start proves nothing."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from integration_tests.campaign import sabotages
from streamgroups.connections.redaction import redacted
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Membership, NewPosition, Owned
from streamgroups.ledgers import batch_commit
from streamgroups.ledgers.compare_and_swap import AlreadyDone, Commit, Fenced
from streamgroups.ledgers.fences import epoch_partition
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_operators import file_format

P0 = TopicPartition("flights", 0)
BATCH = [OffsetRange(P0, 10, 20)]


def _sabotages() -> ModuleType:
    path = Path(__file__).parents[2] / "integration_tests" / "dying" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("sabotages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SABOTAGES = _sabotages()


def _function(module: str, attribute: str) -> Any:
    owner: Any = importlib.import_module(module)
    for part in attribute.split("."):
        owner = getattr(owner, part)
    return owner


@pytest.mark.parametrize(
    ("sabotage", "position", "expected"),
    [
        ("ledger", 10, Commit),
        ("ledger", 20, Commit),
        ("ledger", 30, Commit),
        ("fence", 10, Commit),
        ("fence", 20, AlreadyDone),
        ("fence", 30, Commit),
        ("batch-id", 20, Commit),
    ],
)
def test_a_sabotaged_ledger_commits_what_it_should_reject(sabotage: str, position: int, expected: type[Any]) -> None:
    [(_, wrap)] = SABOTAGES._SABOTAGES[sabotage]["streamgroups.ledgers.batch_commit"]
    judge = batch_commit.judge
    assert isinstance(wrap(judge)(BATCH, {P0: position}, {}), expected)
    # A commit calls it with all facts. It must not fail, or the campaign ends without a batch.
    facts = {P0: position, epoch_partition(P0): 7}, {}, {}, {P0: 3}
    assert isinstance(judge(BATCH, *facts), Fenced | AlreadyDone)
    assert isinstance(wrap(judge)(BATCH, *facts), expected)
    ledger = FakeLedger("g")
    with ledger.transaction() as transaction:
        transaction.advance({P0: position, epoch_partition(P0): 7})
    with mock.patch.object(batch_commit, "judge", wrap(judge)):
        batch_commit.commit_batch(ledger, {"g": BATCH}, "output", epochs={"g": {P0: 3}})
    assert bool(ledger.written) is (expected is Commit)
    if position == 30:
        assert isinstance(judge(BATCH, {P0: position}, {}), Fenced)


@pytest.mark.parametrize("points", [SABOTAGES._WRAPPED, SABOTAGES._RECORDED, *SABOTAGES._SABOTAGES.values()])
def test_every_point_is_in_the_code(points: dict[str, list[tuple[str, Any]]]) -> None:
    for module, attributes in points.items():
        for attribute, _ in attributes:
            assert callable(_function(module, attribute))


@pytest.mark.parametrize(
    ("module", "attribute", "wrap"),
    [
        pytest.param(module, attribute, wrap, id=f"{sabotage}-{attribute}")
        for sabotage, modules in SABOTAGES._SABOTAGES.items()
        for module, replaced in modules.items()
        for attribute, wrap in replaced
    ],
)
def test_a_sabotage_accepts_the_arguments_of_the_code(module: str, attribute: str, wrap: Any) -> None:
    function = _function(module, attribute)
    if not inspect.isfunction(function):
        return
    parameters = inspect.signature(function).parameters.values()
    positional = [it for it in parameters if it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD)]
    named = {it.name: None for it in parameters if it.kind is it.KEYWORD_ONLY}
    inspect.signature(wrap(function)).bind(*positional, **named)


SCHEMA = pa.schema([("k0", pa.string()), ("late", pa.int64()), ("p0", pa.int64())])
SEGMENT = pa.record_batch({"k0": ["a", "b"], "late": [0, 0], "p0": [4, 9]}, schema=SCHEMA)


def test_a_changed_state_file_is_noticed_by_its_checksum_only() -> None:
    content = sabotages.with_a_changed_segment(file_format.pack)("{}", SCHEMA, [SEGMENT, SEGMENT])
    with pytest.raises(ValueError, match=r"its checksum is wrong|bytes instead of"):
        file_format.unpack(content)
    with mock.patch.object(file_format, "_check_body", sabotages.unchecked(file_format._check_body)):
        manifest, reader = file_format.unpack(content)
    assert manifest == "{}"
    assert reader.get_batch(0).to_pydict() == {"k0": ["a", "b"], "late": [0, 0], "p0": [5, 9]}
    assert reader.get_batch(1) == SEGMENT


def test_rows_are_written_in_reverse_order() -> None:
    written = sabotages.reversed_rows(lambda self, records, context: list(records))
    (found,) = written(None, iter([SEGMENT]), None)
    assert found.to_pydict()["k0"] == ["b", "a"]


def test_a_partition_is_never_planned() -> None:
    p1 = TopicPartition("flights", 1)
    available = sabotages.without_a_partition(lambda self, member, stopped: {P0: (0, 5), p1: (2, 9)})
    assert available(None, None, ()) == {p1: (2, 9)}


class PlainMember:
    """A member that owns one partition."""

    def __init__(self, position: int) -> None:
        self.membership = Membership().assign({P0: Owned(position)})

    def move(self, decided: dict[TopicPartition, NewPosition], *, detail: str) -> frozenset[TopicPartition]:
        self.membership = self.membership.move(decided)
        return frozenset(decided)


@pytest.mark.parametrize(("position", "skipped"), [(0, 0), (199, 0), (200, 7), (299, 7), (300, 0), (995, 0)])
def test_a_range_is_skipped_without_a_gap(position: int, skipped: int) -> None:
    member = PlainMember(position)
    available = sabotages.without_a_range(lambda self, member, stopped: {P0: (position, 1_000)})
    assert available(None, member, ()) == {P0: (position + skipped, 1_000)}
    assert member.membership.owned[P0].next_offset == position + skipped


def test_a_batch_without_a_producer_id_can_be_sent_twice() -> None:
    sent: list[dict[TopicPartition, list[int]]] = []

    def round_(self: Any, pending: Any, found: Any) -> None:
        sent.append({tp: list(batches) for tp, batches in pending.items()})
        pending.clear()

    send = sabotages.with_a_lost_response(round_)
    writer, pending = type("Writer", (), {})(), {P0: deque([1, 2])}
    send(writer, pending, [])
    assert sent == [{P0: [1, 2]}, {P0: [1, 2]}]
    assert not pending
    send(writer, {P0: deque([3])}, [])
    assert sent[2:] == [{P0: [3]}]
    assert sabotages.without_a_producer_id(None)(writer) is None  # type: ignore[arg-type]


def test_an_error_is_logged_with_its_secret() -> None:
    assert sabotages.not_redacted(redacted)("password=hunter2", ()) == "password=hunter2"
    assert redacted("The login has password=pl@nted+1/x, and", ()) == "The login has password=***, and"
