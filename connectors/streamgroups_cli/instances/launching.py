"""Starts the processes of workers by a template of a command, and observes their end.

Created by ``streamgroups instance run``. The processes do not end with the manager: they have sessions of their own, and the next
manager finds their leases in the topic. Source: SEMANTICS P2; POSIX (``setsid``).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.instances.entries import Worker
from streamgroups_cli import worker_program

#: The command of a worker without a template: this Python.
DEFAULT = "{python} {program} {arguments}"
_ARGUMENTS = "{arguments}"


def command_of(template: str, arguments: Sequence[str]) -> list[str]:
    """Returns the command of a worker.

    Args:
        template: a command line. ``{arguments}`` stands for the arguments, ``{program}`` for the file that ``spark-submit`` runs,
            and ``{python}`` for this Python.
        arguments: the arguments.

    Raises:
        InvalidOption: if the template is not a command line with ``{arguments}``.

    >>> command_of("env A=b run {arguments}", ["worker", "run"])
    ['env', 'A=b', 'run', 'worker', 'run']
    >>> command_of("run", [])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --worker-command contains no {arguments}. Write it as: \
spark-submit --master URL {program} {arguments}
    """
    example = "Write it as: spark-submit --master URL {program} {arguments}"
    try:
        words = shlex.split(template)
    except ValueError as e:
        raise InvalidOption(f"--worker-command is not a command line: {e}.", remedy=example) from e
    if _ARGUMENTS not in words:
        raise InvalidOption("--worker-command contains no {arguments}.", remedy=example)
    named = {"{python}": sys.executable, "{program}": str(Path(worker_program.__file__).absolute())}
    return [part for word in words for part in (arguments if word == _ARGUMENTS else [named.get(word, word)])]


@dataclass
class ProcessLauncher:
    """See :class:`streamgroups_kafka.instances.manager_process.WorkerLauncher`.

    Args:
        template: the template of the command.
        arguments: the arguments of all workers.
    """

    template: str
    arguments: Sequence[str]
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, worker: Worker) -> None:
        """See :meth:`streamgroups_kafka.instances.manager_process.WorkerLauncher.start`."""
        command = command_of(self.template, ["worker", "run", "--worker-id", worker.id, *self.arguments])
        try:
            self._processes[worker.id] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as e:
            raise StreamGroupsError(
                f"The command of a worker could not be started: {command[0]}: {e.strerror}.",
                remedy="Correct --worker-command.",
            ) from e

    def exited(self) -> Mapping[str, str]:
        """See :meth:`streamgroups_kafka.instances.manager_process.WorkerLauncher.exited`."""
        ended = {it: code for it, process in self._processes.items() if (code := process.poll()) is not None}
        for worker in ended:
            del self._processes[worker]
        return {worker: f"its process has ended with exit code {code}" for worker, code in ended.items()}
