"""The sabotages of the campaign fit the code that they replace. A campaign that cannot start proves nothing."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from streamgroups.fakes import FakeLedger
from streamgroups.ledgers import batch_commit
from streamgroups.ledgers.compare_and_swap import AlreadyDone, Commit, Fenced
from streamgroups.ledgers.fences import epoch_partition
from streamgroups.partitions import OffsetRange, TopicPartition

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
