"""The group of a processor, and the positions from which it starts: a reset, or a savepoint.

``processors start`` and ``stop`` use it.

Source: SEMANTICS O1, C3; ``streamgroups groups reset``, ``streamgroups savepoint restore``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import (
    GroupRejected,
    InvalidOption,
    PartitionsAdded,
    PartlyDone,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups.groups.reset_plan import Scenario
from streamgroups.instances.entries import Definition
from streamgroups.positions import AtTime, Latest, TrimHorizon, parse_time_ms
from streamgroups.processors.processor import Processor
from streamgroups.processors.reading import processor_of
from streamgroups.shell_quoting import command
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import connect_to
from streamgroups_cli.output import print_message
from streamgroups_spark.processors.run_directories import state_directory

_WORDS: dict[str, Scenario] = {"earliest": TrimHorizon(), "latest": Latest()}
_WAIT_S = 60.0


def scenario_of(text: str, now_ms: int) -> Scenario:
    """Returns the position of ``--from``.

    Args:
        text: ``earliest``, ``latest``, a time, or a duration before now.
        now_ms: the time now, in milliseconds since the epoch.

    Raises:
        InvalidOption: if it is another text.

    >>> scenario_of("1h", 7_200_000)
    AtTime(timestamp_ms=3600000)
    """
    if text in _WORDS:
        return _WORDS[text]
    if text.strip().isdigit():
        return AtTime(parse_time_ms(text, option="--from"))
    try:
        return AtTime(now_ms - parse_duration_ms(text, option="--from"))
    except InvalidOption:
        pass
    try:
        return AtTime(parse_time_ms(text, option="--from"))
    except InvalidOption as e:
        raise InvalidOption(
            f"--from is '{text}'.",
            remedy="Use earliest, latest, a time in ISO 8601, or a duration before now, as in 1h30m.",
        ) from e


@dataclass(frozen=True, slots=True)
class ProcessorGroup:
    """The group of a processor, on the cluster of its source. The topic of its instance can be on another cluster.

    Args:
        cluster: the cluster.
        group_id: the group.
        processor: the processor.
    """

    cluster: Cluster
    group_id: str
    processor: Processor

    @property
    def state_location(self) -> str | None:
        """The location of its states; ``None`` if it has none on this machine."""
        if self.processor.state_location is not None:
            return self.processor.state_location
        local = state_directory(self.group_id)
        return local if Path(local).is_dir() else None

    def scope(self) -> dict[str, frozenset[int] | None]:
        """The topics that it reads now, with all their partitions.

        Raises:
            UnknownTopic: if its pattern matches no topic.
        """
        source = self.processor.source
        if source.topics:
            return dict.fromkeys(source.topics)
        matching: dict[str, frozenset[int] | None] = {
            topic: None for topic in self.cluster.topics.describe_topics() if source.reads(topic)
        }
        if not matching:
            raise UnknownTopic(
                f"The pattern of the processor '{self.processor.name}' matches no topic; nothing was changed.",
                remedy="Create a topic first, or start the processor without --from.",
            )
        return matching


@contextmanager
def processor_group(instance: str, definition: Definition, timeout_s: float) -> Iterator[ProcessorGroup]:
    """Connects to the cluster of the source of a processor.

    Args:
        instance: the name of the instance.
        definition: the definition of the processor.
        timeout_s: the timeout of requests, in seconds.
    """
    declared = processor_of(definition.content)
    with connect_to(declared.source.connection, timeout_s) as cluster:
        yield ProcessorGroup(cluster, declared.group_id(instance), declared)


def reset_groups(groups: Sequence[ProcessorGroup], text: str) -> list[str]:
    """Resets groups without members, with their states. All are checked before the first one is changed.

    Args:
        groups: the groups.
        text: the position.

    Returns:
        The groups whose offsets were changed.

    Raises:
        GroupRejected: see :func:`planned_reset`.
        PartitionsAdded: see :func:`planned_reset`.
        PartlyDone: if some groups were reset, and one was not.
    """
    planned = [(group.group_id, planned_reset(group, text)) for group in groups]
    changed: list[str] = []
    for group_id, reset in planned:
        try:
            if reset():
                changed.append(group_id)
        except StreamGroupsError as e:
            raise after_resets(changed, e) from (e if changed else None)
        except KeyboardInterrupt:
            if changed:
                print_message(str(after_resets(changed, StreamGroupsError("The command was interrupted."))))
            raise
    return changed


def after_resets(reset: Sequence[str], error: StreamGroupsError) -> StreamGroupsError:
    """Returns the error of a start whose first steps are done.

    Args:
        reset: the groups whose offsets were changed.
        error: the error of the next step.

    >>> print(after_resets(["board.late"], GroupRejected("Group 'board.early' has members.", remedy="Stop them.")))
    Reset, and not started: group 'board.late'. Group 'board.early' has members. Stop them. Then repeat the command. To undo \
a reset: streamgroups groups undo board.late --execute.
    """
    if not reset:
        return error
    undo = "; ".join(command("groups undo", [it], "--execute") for it in reset)
    return PartlyDone(
        f"Reset, and not started: group {', '.join(map(repr, reset))}. {error.what}",
        remedy=f"{error.remedy} Then repeat the command. To undo a reset: {undo}.".strip(),
    )


def planned_reset(group: ProcessorGroup, text: str) -> Callable[[], bool]:
    """Plans and checks the reset of a group without members, with its states. Nothing is changed.

    Args:
        group: the group.
        text: the position.

    Returns:
        A function that resets the group, and returns whether an offset was changed.

    Raises:
        GroupRejected: if the processor has run, and its checkpoint would undo the reset.
        PartitionsAdded: if partitions were added to a topic of a group with states, and its source does not accept them.
    """
    declared = group.processor
    if declared.undoes_resets and group.cluster.groups.committed_offsets([group.group_id])[group.group_id]:
        raise GroupRejected(
            f"The processor '{declared.name}' continues at the positions of its checkpoint {declared.checkpoint}, not at those of "
            "its group; nothing was changed.",
            remedy="Set 'onRestart: group' in its source, apply the file, and start it again.",
        )
    from streamgroups_cli.groups.apply import ChangeOptions, apply_plans, checked
    from streamgroups_cli.groups.reset_plans import plan_scenario

    cluster = group.cluster
    plans = plan_scenario(cluster, [group.group_id], group.scope(), scenario_of(text, cluster.now_ms()))
    change = ChangeOptions(execute=True, state_location=group.state_location)
    if declared.accepts_added:
        plans = [replace(plan, added=()) for plan in plans]
    try:
        ready = checked(cluster, plans, change)
    except PartitionsAdded as e:
        raise e.with_text(e.what, f"{e.remedy} Then start the processor without --from.") from None
    return lambda: apply_plans(cluster, ready, change, why=f"before a start from {text}")


def restored_from(
    group: ProcessorGroup, savepoint: str, *, accept_repeated_output: bool, accept_other_partitions: bool
) -> None:
    """Restores a savepoint into a group without members.

    Args:
        group: the group.
        savepoint: the location of savepoints, and the id.
        accept_repeated_output: whether output after the savepoint can be written again.
        accept_other_partitions: whether partitions that the savepoint does not have keep their offsets.

    Raises:
        InvalidOption: if the text has no location.
        GroupRejected: if output would be written again, or partitions keep their offsets, and this is not accepted.
    """
    from streamgroups.savepoints.restoring import Operators
    from streamgroups_admin.savepoints.restoring import (
        Restore,
        carry_out_restore,
        effects,
        plan_restore,
        target_of,
    )
    from streamgroups_operators.savepoints.directory import SavepointDirectory

    location, _, id_ = savepoint.rstrip("/").rpartition("/")
    if not location:
        raise InvalidOption(
            f"--savepoint is '{savepoint}'.", remedy="Write LOCATION/ID, as 'savepoint create' prints it."
        )
    directory, unchanged = SavepointDirectory(location, id_), Operators({}, frozenset())
    record = directory.read()
    states = group.state_location or state_directory(group.group_id)
    target = target_of(
        record, unchanged, group=group.group_id, state_location=states, checkpoint=None, is_state_only=False
    )
    restore = Restore(directory, record, target)
    plan = plan_restore(group.cluster, restore)
    for effect in effects(restore, plan):
        print_message(effect)
    carry_out_restore(
        group.cluster,
        restore,
        plan,
        undo_file=None,
        wait_s=_WAIT_S,
        accept_repeated_output=accept_repeated_output,
        accept_other_partitions=accept_other_partitions,
    )
