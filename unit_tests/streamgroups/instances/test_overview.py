"""The states of processors and workers, as an operator sees them."""

from __future__ import annotations

from streamgroups.instances.entries import Observation, Observed, Replica
from streamgroups.instances.manager import ManagerSettings
from streamgroups.instances.overview import ReplicaView, overview
from unit_tests.streamgroups.instances.model import Instance, names


def view(instance: Instance, name: str) -> ReplicaView:
    (found,) = [
        it for it in overview("board", instance.state, instance.now_ms).replicas if it.replica.processor == name
    ]
    return found


def test_the_states_of_a_processor() -> None:
    instance = Instance(ManagerSettings(slots=1, max_workers=1))
    instance.define("proc01")
    assert (view(instance, "proc01").state, view(instance, "proc01").why) == (
        "defined",
        "start it with: streamgroups processors start proc01",
    )
    instance.start(*names(1, 2))
    assert "no manager places it" in view(instance, "proc01").why
    instance.settle()
    assert (view(instance, "proc01").state, view(instance, "proc01").worker) == ("running", instance.where("proc01")[0])
    assert (view(instance, "proc02").state, view(instance, "proc02").why) == (
        "starting",
        "no free slot: add a worker with: streamgroups worker run --instance board",
    )
    instance.fail(Replica("proc01", 0))
    instance.settle()
    assert (view(instance, "proc01").state, view(instance, "proc01").error_code) == ("failed", "data_loss")
    assert view(instance, "proc02").state == "running"
    instance.stop("proc02")
    assert view(instance, "proc02").state == "stopping"
    instance.settle()
    assert view(instance, "proc02").state == "stopped"
    instance.start("proc01")
    instance.settle()
    instance.stop("proc01")
    instance.kill(instance.where("proc01")[0] or "")
    instance.settle(1_000, 10)
    assert view(instance, "proc01").state == "stopped"


def test_a_running_processor_with_an_earlier_definition_is_outdated() -> None:
    instance = Instance()
    instance.start("proc01")
    instance.settle()
    placement = instance.state.placements[Replica("proc01", 0)]
    revision = instance.state.definitions["proc01"].revision
    instance.write(Observation(placement, Observed.RUNNING, 0, revision))
    assert not view(instance, "proc01").is_outdated
    instance.define("proc01", 2)
    assert overview("board", instance.state, 0).replicas[0].is_outdated


def test_processes_that_do_not_respond() -> None:
    instance = Instance()
    instance.start("proc01")
    instance.settle()
    found = overview("board", instance.state, instance.now_ms)
    assert (found.manager, [it.state for it in found.workers]) == ("running", ["running"])
    assert [str(it.replica) for it in found.workers[0].replicas] == ["proc01/0"]
    later = overview("board", instance.state, instance.now_ms + 10_000)
    assert later.manager.startswith("not responding for 10 s (process 1 on host)")
    assert [it.state for it in later.workers] == ["not responding"]
