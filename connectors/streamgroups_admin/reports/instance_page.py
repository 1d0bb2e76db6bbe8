"""The page of ``streamgroups instance status --html``: the workers of an instance with their slots.

:mod:`streamgroups.instances.overview` has the content. Source: SEMANTICS P2.
"""

from __future__ import annotations

from typing import Any

from streamgroups.instances.overview import Overview, ReplicaView, WorkerView
from streamgroups.times import utc
from streamgroups_admin.reports.html_page import templates


def instance_page(found: Overview, now_ms: int) -> str:
    """Returns the page of an instance.

    Args:
        found: the instance.
        now_ms: the time of the page, in milliseconds since the epoch.

    >>> "<h1>Instance board</h1>" in instance_page(Overview("board", "running", (), ()), 0)
    True
    """
    in_slots = {it.replica for worker in found.workers for it in worker.replicas}
    n_running = sum(it.state == "running" for it in found.replicas)
    intro = f"{utc(now_ms)}. Manager: {found.manager}. {n_running} of {len(found.replicas)} replicas run."
    return (
        templates()
        .get_template("instance.html")
        .render(
            title=f"Instance {found.instance}",
            intro=intro,
            workers=[_worker(it) for it in found.workers],
            others=[_slot(it) for it in found.replicas if it.replica not in in_slots],
        )
    )


def _worker(view: WorkerView) -> dict[str, Any]:
    worker = view.worker
    free = [None] * max(worker.slots - len(view.replicas), 0)
    place = f"{len(view.replicas)} of {worker.slots} slots, process {worker.pid} on {worker.host}"
    return {"id": worker.id, "state": view.state, "place": place, "slots": [*map(_slot, view.replicas), *free]}


def _slot(view: ReplicaView) -> dict[str, str]:
    progress, facts = view.progress, [view.why] if view.why else []
    if progress is not None:
        facts.append(f"batch {progress.batch}, {progress.rows_per_s} rows/s")
        if progress.lag is not None:
            facts.append(f"lag {progress.lag}")
        if progress.watermark_ms is not None:
            facts.append(f"watermark {utc(progress.watermark_ms)}")
    if view.is_outdated:
        facts.append("earlier definition")
    return {"name": str(view.replica), "state": view.state, "facts": "; ".join(facts)}
