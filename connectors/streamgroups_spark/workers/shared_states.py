"""Detects states in a directory that the workers of an instance do not share, before a replica starts.

A local path can be a directory of one machine or a shared file system. So each worker writes a file with the name of its host,
and a worker of another host must see it. Called by ``replica_run``, and by ``streamgroups worker run`` at its start. An object
store is always shared. Source: SEMANTICS P2, S10.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyarrow import fs

from streamgroups.errors import InvalidOption
from streamgroups.instances.entries import Observed
from streamgroups.instances.instance_state import InstanceState
from streamgroups.path_names import path_part
from streamgroups.private_directories import make_private
from streamgroups.processors.processor import Processor
from streamgroups_operators.locations import opened, translated
from streamgroups_spark.processors.run_directories import processors_directory


def announce(host: str) -> None:
    """Writes the file of a worker into the local directory of all processors, before its first heartbeat.

    Args:
        host: the host of the worker.

    Raises:
        InvalidOption: if the environment variable of the directory contains a URI.
        StateUnreachable: if the directory cannot be written.
    """
    _write(processors_directory(), "worker", host)


def check_shared(declared: Processor, group_id: str, host: str, state: InstanceState) -> None:
    """Rejects the states of a processor in a directory that workers of other hosts do not share.

    Without ``stateLocation`` all live workers must share the local directory. Otherwise those must share the location that run other
    replicas. A later worker that does not share it fails with ``StateMissing``.

    Args:
        declared: the processor.
        group_id: its group.
        host: the host of the worker that starts a replica.
        state: the state of the instance.

    Raises:
        InvalidOption: if the file of another host is not in the directory.
        StateUnreachable: if the directory cannot be written.
    """
    if not declared.states:
        return
    if declared.state_location is None:
        live = {it.host for it in state.workers.values() if it.heartbeat}
        _require(declared, processors_directory(), "worker", live - {host}, host)
        return
    files, path = opened(declared.state_location)
    if not isinstance(files, fs.LocalFileSystem):
        return
    _write(Path(path), group_id, host)
    running = {
        state.workers[it.placement.worker].host
        for replica in state.replicas(declared.name)
        if (it := state.current(replica)) is not None
        and it.state is Observed.RUNNING
        and it.placement.worker in state.workers
    }
    _require(declared, Path(path), group_id, running - {host}, host)


def _require(declared: Processor, directory: Path, of: str, hosts: Iterable[str], host: str) -> None:
    missing = sorted(it for it in hosts if not _file(directory, of, it).exists())
    if missing:
        place = "'stateLocation'" if declared.state_location is not None else "The directory of states"
        raise InvalidOption(
            f"{place} of processor '{declared.name}' is '{directory}'. On host '{host}' it has no file of the worker on host "
            f"'{missing[0]}', so each host has a directory of its own.",
            remedy="Set 'stateLocation' in its source to storage that the hosts of all workers share. Or run all workers on one "
            "machine.",
        )


def _write(directory: Path, of: str, host: str) -> None:
    with translated(str(directory)):
        make_private(directory)
        _file(directory, of, host).touch()


def _file(directory: Path, of: str, host: str) -> Path:
    # A hidden file: directories at a location of states are those of groups.
    return directory / f".{path_part(f'{of}@{host}', 200)}"
