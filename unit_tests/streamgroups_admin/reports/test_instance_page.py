"""The page of an instance: its workers, free slots, and processors without a worker."""

from __future__ import annotations

from streamgroups.instances.entries import Observation, Observed, Progress, Replica
from streamgroups.instances.manager import ManagerSettings
from streamgroups.instances.overview import overview
from streamgroups_admin.reports.instance_page import instance_page
from unit_tests.streamgroups.instances.model import Instance, names


def test_a_page_has_each_slot_and_escapes_errors() -> None:
    instance = Instance(ManagerSettings(slots=2, max_workers=1))
    instance.start(*names(1, 2))
    instance.define("proc03")
    instance.settle()
    placed = instance.state.placements[Replica("proc01", 0)]
    instance.write(Observation(placed, Observed.RUNNING, 0, progress=Progress(7, 120, 35, 0)))
    failed = instance.state.placements[Replica("proc02", 0)]
    instance.write(Observation(failed, Observed.FAILED, 0, error="<script>"))
    page = instance_page(overview("board", instance.state, instance.now_ms), 0)
    assert "batch 7, 120 rows/s; lag 35; watermark 1970-01-01" in page
    assert page.count("free slot") == 1
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "start it with: streamgroups processors start proc03" in page
