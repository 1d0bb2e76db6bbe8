"""The instance of a command: its name, its topic, and its state.

The commands under ``instance``, ``worker`` and ``processors`` use it. Source: SEMANTICS P2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups.errors import BrokerUnreachable, InvalidOption
from streamgroups.instances.entries import Entry, check_name
from streamgroups.instances.instance_state import InstanceState
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect, timeout_s
from streamgroups_cli.output import print_message

if TYPE_CHECKING:
    from streamgroups.instances.ports import InstanceLog

_POLL_S = 0.5

InstanceArgument = Annotated[str, typer.Argument(metavar="NAME", help="The instance.", show_default=False)]


@dataclass(frozen=True, slots=True)
class InstanceOptions(Connect):
    """The options of a command about one instance."""

    instance: Annotated[
        str,
        typer.Option(
            "--instance",
            "-i",
            metavar="NAME",
            envvar="STREAMGROUPS_INSTANCE",
            help="The instance (streamgroups instance run).",
            show_default=False,
        ),
    ] = ""

    @property
    def name(self) -> str:
        """The name of the instance.

        Raises:
            InvalidOption: if it is missing, or not valid.
        """
        if not self.instance:
            raise InvalidOption("The instance is missing.", remedy="Use --instance NAME, or set STREAMGROUPS_INSTANCE.")
        return check_name(self.instance, "an instance")


@dataclass(frozen=True, slots=True)
class OpenInstance:
    """An instance, as its topic was read.

    Args:
        name: its name.
        log: its topic.
        cluster: its cluster.
        timeout_s: the timeout of a read, in seconds.
    """

    name: str
    log: InstanceLog
    cluster: Cluster
    timeout_s: float

    def state(self) -> InstanceState:
        """Reads the state. Prints a warning about records that are not entries."""
        with closing(self.log.reader()) as reader:
            reader.read_to_end(self.timeout_s)
            for it in reader.rejected:
                print_message(f"Warning: the record at offset {it.offset} is not an entry: {it.why}.")
            return reader.state

    def write(self, entries: Sequence[Entry]) -> None:
        """Writes entries in their order."""
        with closing(self.log.writer()) as writer:
            writer.write(entries)

    def wait_for(self, is_done: Callable[[InstanceState], bool], wait_s: float, what: str) -> InstanceState:
        """Follows the instance until a condition is met.

        Args:
            is_done: the condition.
            wait_s: how long to wait, in seconds.
            what: what did not happen, for the error.

        Raises:
            BrokerUnreachable: if it is not met in time. The request is stored, and stays valid.
        """
        waited_s = 0.0
        with closing(self.log.reader()) as reader:
            reader.read_to_end(self.timeout_s)
            while not is_done(reader.state):
                if waited_s >= wait_s:
                    raise BrokerUnreachable(
                        f"{what} within {wait_s:g} s. The request is stored, and stays valid.",
                        remedy=f"See: streamgroups instance status {self.name}",
                    )
                before_ms = self.cluster.now_ms()
                reader.poll(_POLL_S)
                waited_s += max((self.cluster.now_ms() - before_ms) / 1_000, 0.001)
            return reader.state


@contextmanager
def open_instance(connect: Connect, name: str) -> Iterator[OpenInstance]:
    """Connects to the cluster of an existing instance.

    Raises:
        UnknownTopic: if the instance does not exist.
    """
    with connect() as cluster:
        yield OpenInstance(name, open_log(cluster, name), cluster, timeout_s(connect.timeout))


def open_log(cluster: Cluster, name: str) -> InstanceLog:
    """Returns the topic of an existing instance.

    Raises:
        UnknownTopic: if the instance does not exist.
    """
    log = instance_log(cluster, name)
    log.check()
    return log


def instance_log(cluster: Cluster, name: str) -> InstanceLog:
    """The topic of an instance on a real cluster. Tests replace this function."""
    from streamgroups_kafka.instances.instance_topic import KafkaInstanceLog

    return KafkaInstanceLog(cluster.config, name)


def require_defined(state: InstanceState, names: Sequence[str], instance: str) -> None:
    """Rejects processors that the instance does not define.

    Raises:
        InvalidOption: with the name of the first one.
    """
    for name in names:
        if name not in state.definitions:
            known = f"It defines: {', '.join(sorted(state.definitions))}. " if state.definitions else ""
            raise InvalidOption(
                f"The instance '{instance}' does not define the processor '{name}'.",
                remedy=f"{known}'streamgroups processors apply -f DIR' defines processors; each exists only in its instance.",
            )
