"""C3, X2: a savepoint records the ledger of a real table, and the version whose rows are those of the committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

import streamgroups as sg
from component_tests.delta_tables import GROUP, open_at, partition, records, write_batch
from streamgroups.errors import GroupRejected, SinkRejected
from streamgroups.savepoints.output_record import require_output
from streamgroups_admin.savepoints.store import read_output

P0 = partition(0)


def test_C3_X2_a_restored_delta_table_has_the_rows_of_the_savepoint(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "board"))
    open_at(sink)
    for begin in (0, 10, 20, 30):
        write_batch(sink, begin, begin + 10, records(begin, begin + 10))
    saved = read_output(sink, GROUP, {P0: 20})
    assert saved.positions == {P0: 20}
    assert saved.table_version is not None
    assert saved.table_version < DeltaTable(sink.uri).version()
    DeltaTable(sink.uri).restore(saved.table_version)
    assert DeltaTable(sink.uri).to_pyarrow_table().num_rows == 20
    # RESTORE keeps the positions: the ledger follows the group when its queries start.
    current = read_output(sink, GROUP, {P0: 40})
    assert current.positions == {P0: 40}
    require_output(saved, current, {P0: 20})


def test_C3_X2_a_table_before_the_savepoint_is_rejected(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "board"))
    open_at(sink)
    write_batch(sink, 0, 10, records(0, 10))
    with pytest.raises(GroupRejected, match="the output of 10 offsets before the savepoint is missing"):
        require_output(None, read_output(sink, GROUP, {P0: 20}), {P0: 20})
    missing = sg.DeltaSink(uri=str(tmp_path / "other"))
    with pytest.raises(SinkRejected):
        read_output(missing, GROUP, {P0: 20})
    assert not (tmp_path / "other").exists()


def test_C3_X2_the_ledger_in_postgres_is_recorded(postgres: str) -> None:
    sink = sg.PostgresSink(conninfo=postgres, table="board", ledger_table="ledger_of_savepoints")
    with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
        transaction.positions([P0])
        transaction.advance({P0: 20})
    output = read_output(sink, GROUP, {P0: 20})
    assert (output.name, output.positions, output.table_version) == (
        "postgres:board (ledger ledger_of_savepoints)",
        {P0: 20},
        None,
    )
