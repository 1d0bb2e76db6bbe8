"""``streamgroups dlq redrive``: sends the records of letters again, once only.

It prints a plan, and ``--execute`` applies it in transactions. A run that is killed has sent whole transactions, and the next
run sends the rest. ``streamgroups_cli.dlq`` imports it. Source: SEMANTICS P5, O2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.acls import grant
from streamgroups.dlq.letter_files import parse_lines
from streamgroups.dlq.redrive import Planned, Repaired, State, Targets, is_reserved, plan_redrive, transactions
from streamgroups.dlq.stored_letters import Selection
from streamgroups.dlq.table_letters import AnyLetter
from streamgroups.errors import InvalidOption, NotAuthorized, PartlyDone, StreamGroupsError, UnknownTopic
from streamgroups.printable import listed
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.dlq import queue as queues
from streamgroups_cli.dlq.queue import DlqArgument, Queue, QueueOptions, SelectOptions
from streamgroups_cli.groups.apply import NOTHING_TO_DO, ONLY_A_PLAN
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import Output, OutputOption, emit_rows, print_message

#: Groups in the command of a remedy. Any client can write letters with any groups.
_MAX_GRANTED = 10
_NAME_TOPICS = "Or name the topics of the letters with --source."
_COLUMNS = (Column("id"), Column("attempt", right=True), Column("state"), Column("to"), Column("repaired"))


@with_options
def redrive(
    options: QueueOptions,
    select: SelectOptions,
    dlq: DlqArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Send to this topic. Default: the topic of each record.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Send the letters of a file of 'export', with its values."),
    ] = None,
    include_parked: Annotated[bool, typer.Option("--include-parked", help="Send parked records too.")] = False,
    execute: ExecuteOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Send the records of dead letters to their topics again, each once only."""
    lines = None if from_file is None else _lines(from_file)
    with options.queue(dlq) as queue:
        _check_target(queue, to)
        redriven = queue.redriven()
        letters, repaired = _letters(queue, select.selection, lines, str(from_file))
        plan = plan_redrive(
            letters,
            redriven,
            to=to,
            targets=None if to is not None else _targets(queue, letters, redriven, select.selection),
            max_attempts=options.max_attempts,
            include_parked=include_parked,
            repaired=repaired,
        )
        sent = [it for it in plan if it.topic is not None]
        _check_topics(queue.cluster, sorted({str(it.topic) for it in sent}))
        _emit(dlq, plan, output, dry_run=not execute)
        queue.warn_of_foreign()
        _warn(plan, to)
        undecided = _undecided(plan, has_sent=bool(sent))
        if undecided is not None and not execute:
            print_message(f"Warning: {undecided}")
        if sent and execute:
            _send(queue, sent, options.timeout)
        elif sent or undecided is None:
            print_message(ONLY_A_PLAN if sent else NOTHING_TO_DO)
        if undecided is not None and execute:
            raise undecided


def _check_target(queue: Queue, to: str | None) -> None:
    if to is not None and is_reserved(to, queue.name):
        raise InvalidOption(
            f"--to {to} is a topic of the queue itself, or internal to Kafka.",
            remedy="Name a topic that a query reads.",
        )


def _targets(queue: Queue, letters: Sequence[AnyLetter], redriven: Collection[str], selection: Selection) -> Targets:
    """The topics to which records can return: those of ``--source``, and those that the groups of the letters read.

    A letter can name any group. One that is invalid, or that this user may not describe, must not hide the others.

    Raises:
        StreamGroupsError: if the brokers do not return the topics of a group (SEMANTICS G17). Nothing is sent.
    """
    named = frozenset(selection.sources or ())
    others = {
        it.letter.group_id
        for it in letters
        if it.letter.origin is not None
        and it.letter.origin.topic_partition.topic not in named
        and it.letter.id not in redriven
    }
    read: dict[str, frozenset[str]] = {}
    denied = set()
    for group_id in sorted(others):
        try:
            committed_by = queue.cluster.groups.committed_offsets([group_id])
            read[group_id] = frozenset(tp.topic for tp in committed_by.get(group_id, {}))
        except InvalidOption:
            read[group_id] = frozenset()
        except NotAuthorized:
            denied.add(group_id)
        except StreamGroupsError as e:
            raise e.with_text(f"{e.what} Nothing was sent.", f"{e.remedy} {_NAME_TOPICS}".strip()) from None
    return Targets(queue.name, named, read, denied)


def _lines(file: Path) -> list[str]:
    try:
        # A text in JSON can contain other separators of lines, such as U+2028.
        return file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidOption(
            f"{file} cannot be read: {e}.", remedy="Name a file that 'streamgroups dlq export' has written."
        ) from None


def _letters(
    queue: Queue, selection: Selection, lines: Sequence[str] | None, file: str
) -> tuple[list[AnyLetter], Mapping[str, Repaired] | None]:
    """The selected letters, and the keys and values of a file. With a file, only its letters are selected."""
    if lines is None:
        return list(queue.letters(selection)), None
    letters = list(queue.letters(Selection()))
    repaired = parse_lines(lines, {it.letter.id: it.letter for it in letters}, file=file)
    return [it for it in letters if it.letter.id in repaired and selection.matches(it.letter)], repaired


def _check_topics(cluster: Cluster, topics: Sequence[str]) -> None:
    found = cluster.topics.describe_topics(topics, operation="Write") if topics else {}
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise UnknownTopic(
            f"Topic {listed(map(repr, missing))} does not exist; nothing was sent.",
            remedy="Create it, or name another topic with --to.",
            topic=missing[0] if len(missing) == 1 else None,
        )


def _send(queue: Queue, planned: Sequence[Planned], timeout: str) -> None:
    sent = 0
    try:
        with queues.open_redrive(queue.cluster, queue.name, timeout) as running:
            # Only now no other redrive can add ids.
            for records in transactions(planned, queue.redriven()):
                running.send(records)
                sent += len(records)
    except StreamGroupsError as e:
        if not sent:
            raise
        raise PartlyDone(
            f"{sent} of {len(planned)} letters were redriven. {e.what}",
            remedy="Remove the cause, and run the command again: it sends the others.",
        ) from None
    print_message(f"{sent} letter{'' if sent == 1 else 's'} redriven.")
    if sent < len(planned):
        print_message(f"{len(planned) - sent} more were redriven by another run meanwhile.")


def _undecided(plan: Sequence[Planned], *, has_sent: bool) -> StreamGroupsError | None:
    """The error about letters whose groups this user may not describe, after the others were sent."""
    undecided = [it.stored.letter for it in plan if it.is_undecided]
    if not undecided:
        return None
    groups = sorted({it.group_id for it in undecided})
    return (PartlyDone if has_sent else NotAuthorized)(
        f"{len(undecided)} letters are left out: this user may not describe their groups ({listed(map(repr, groups))}), so the "
        "topics to which their records can return are unknown.",
        remedy=f"{grant('Describe', 'Group', groups[:_MAX_GRANTED])}. {_NAME_TOPICS}",
        group=groups[0] if len(groups) == 1 else None,
    )


def _warn(plan: Sequence[Planned], to: str | None) -> None:
    unwritable = [it.stored.letter.id for it in plan if it.is_unwritable]
    left_out = [it for it in plan if it.topic is None and not it.is_unwritable and not it.is_undecided]
    counts = {state: sum(it.state is state for it in left_out) for state in State}
    if counts[State.REDRIVEN]:
        print_message(f"{counts[State.REDRIVEN]} letters are already redriven, and are left out.")
    if counts[State.PARKED]:
        print_message(
            f"{counts[State.PARKED]} records are parked: they failed too often. --include-parked sends them too."
        )
    if counts[State.WAITING]:
        print_message(
            f"{counts[State.WAITING]} letters name a topic that their group does not read, or that this user may not describe. "
            "Another client may have written them. Check them, and name the topic with --source or --to. Topics of the queue and "
            "internal ones are left out."
        )
    if counts[State.NO_RECORD]:
        print_message(
            f"{counts[State.NO_RECORD]} letters do not contain their records. Add the missing keys and values to a file of "
            "'export', or name a topic with --to."
        )
    if unwritable:
        print_message(
            f"{len(unwritable)} letters are left out, because librdkafka cannot write their timestamp (1970-01-01T00:00:00Z or "
            f"before) or the name of a header (with NUL): {listed(unwritable)}. Write these records with another client."
        )
    if to is None and any(it.topic is not None for it in plan):
        print_message(
            "Each group that reads these topics receives the records again. With --to TOPIC, only the queries that read "
            "TOPIC receive them."
        )


def _emit(dlq: str, plan: Sequence[Planned], output: Output, *, dry_run: bool) -> None:
    shown = [it for it in plan if it.state is not State.REDRIVEN]
    rows: list[Sequence[Cell]] = [
        [
            it.stored.letter.id,
            it.stored.letter.attempt,
            it.state.value,
            it.topic,
            None if it.repaired is None else "yes" if it.repaired.changes(it.stored.letter) else "no",
        ]
        for it in shown
    ]
    redriven_before = len(plan) - len(shown)
    emit_rows(output, "letters", Table(_COLUMNS, rows), dry_run=dry_run, dlq=dlq, redriven_before=redriven_before)
