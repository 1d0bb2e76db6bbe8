"""The reference of metrics has each metric that the pages describe."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
metric_tables = importlib.import_module("metric_tables")
#: In the text of the page, because the listener exports it beside the tables.
IN_THE_TEXT = {"streamgroups_query_event_errors_total"}


@pytest.mark.parametrize(("page", "kind"), [("metrics.rst", "listener"), ("groups-cli.rst", "exporter")])
def test_the_reference_has_the_metrics_of_a_page(page: str, kind: str) -> None:
    rows = re.findall(r"^``(streamgroups_\w+)`` ", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 10
    names = {name for name, _, _ in metric_tables.rows(kind)}
    assert set(rows) - names - IN_THE_TEXT == set()


@pytest.mark.parametrize("kind", ["listener", "exporter"])
def test_a_metric_has_one_row_and_a_meaning(kind: str) -> None:
    rows = list(metric_tables.rows(kind))
    assert len({name for name, _, _ in rows}) == len(rows)
    assert all(meaning.endswith(".") for _, _, meaning in rows)
