"""The form of a program: what all members of a group must have in common, and the rejection of another one.

Built by ``streamgroups_spark.source.query_checks`` and by group cursors. Each commit of a member names the form of its program
(:mod:`streamgroups.groups.commit_metadata`). Checked before a member joins (:mod:`streamgroups.query.join_group`), for each assigned
position, and against the checkpoint (:mod:`streamgroups.query.logged_offsets`). Source: SEMANTICS S14.

A form is a text: the operators with state, then the output that changes together with the positions::

    none                                              neither
    windows:minutes                                   one operator
    windows:minutes > windows:hours -> kafka:clicks   a chain, exactly once
    join:paid + stateful:totals                       two branches of one query
    cursors                                           GroupCursors

An empty text is an unknown form: an earlier version, a tool or another client made the commit. It is compatible with all forms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from urllib.parse import quote

from streamgroups.errors import ProgramMismatch
from streamgroups.groups.commit_metadata import CommitMark, mark_of
from streamgroups.groups.description import GroupDescription
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed, printable
from streamgroups.shell_quoting import command
from streamgroups.url_logins import without_login

#: The form of a program without operators with state, whose output does not change together with the positions.
NO_FORM = "none"
#: The form of GroupCursors.
CURSORS = "cursors"
#: A committed offset has 4,096 bytes of metadata, in which a character needs up to 12.
_MAX_LENGTH, _MAX_QUOTED_LENGTH = 200, 900
_HASH_DIGITS = 12
#: The end of the path in a URL.
_PARAMETERS = re.compile(r"[?#]")


class OnOtherProgram(Enum):
    """What happens if the group belongs to another program: the option ``onOtherProgram``."""

    FAIL = "fail"
    CONTINUE = "continue"


def form_of(branches: Iterable[Sequence[str]], operators: Iterable[str] = (), output: str = "") -> str:
    """The form of a program.

    Args:
        branches: the operators of this library in each branch of the query, in the order in which they process its records, as
            ``kind:name``.
        operators: the stateful operators of Spark.
        output: the output that changes together with the positions, as ``kind:name``. Empty without one.

    >>> form_of([("windows:minutes", "windows:hours"), ("dedup:ids",)], ["Aggregate"], "kafka:clicks")
    'dedup:ids + spark:Aggregate + windows:minutes > windows:hours -> kafka:clicks'
    >>> form_of([]), form_of([], output="delta:/data/clicks")
    ('none', 'none -> delta:/data/clicks')
    """
    chains = {" > ".join(branch) for branch in branches if branch}
    parts = sorted(chains | {f"spark:{name}" for name in operators})
    form = " + ".join(parts) or NO_FORM
    # A name can contain characters that are no text, such as half of a surrogate pair.
    return _shortened(printable(f"{form} -> {output}" if output else form))


def shown_location(location: str) -> str:
    """The location of an output without credentials, parameters and a slash at its end.

    >>> shown_location("s3://key:secret@bucket/clicks/?region=eu"), shown_location("/data/clicks")
    ('s3://bucket/clicks', '/data/clicks')
    >>> shown_location("abfss://container@account.dfs.core.windows.net/clicks")
    'abfss://container@account.dfs.core.windows.net/clicks'
    """
    if "://" not in location:
        return location.rstrip("/") or location
    # Not parsed any further: a parser rejects some hosts, and its error contains them.
    scheme, sign, rest = without_login(location, keeps_user=True).partition("://")
    return f"{scheme.lower()}{sign}{_PARAMETERS.split(rest, maxsplit=1)[0].rstrip('/')}"


def other_forms(form: str, forms: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """The positions that belong to another program.

    Args:
        form: the form of this program. Empty if it is unknown.
        forms: the forms of positions.

    >>> p0, p1, p2 = (TopicPartition("clicks", p) for p in range(3))
    >>> other_forms("none", {p0: "none", p1: "", p2: "windows:minutes"})
    {TopicPartition(topic='clicks', partition=2): 'windows:minutes'}
    """
    return {tp: other for tp, other in forms.items() if other and form and other != form}


def forms_in(metadata: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """The forms that the metadata of committed offsets name. Empty texts for unknown ones."""
    marks = {tp: mark_of(it) for tp, it in metadata.items()}
    return {tp: "" if mark is None else mark.form for tp, mark in marks.items()}


def is_committed_by(form: str, partitions: Collection[TopicPartition], metadata: Mapping[TopicPartition, str]) -> bool:
    """Whether members of a program have committed offsets of these partitions.

    Args:
        form: the form of the program.
        partitions: the partitions.
        metadata: the metadata of committed offsets.

    >>> p0 = TopicPartition("clicks", 0)
    >>> is_committed_by("none", [p0], {p0: CommitMark(False, form="none").encode()}), is_committed_by("none", [p0], {})
    (True, False)
    """
    marks = {tp: CommitMark.parse(metadata.get(tp, "")) for tp in partitions}
    return all(mark is not None and mark.form == form for mark in marks.values())


def check_program(
    form: str,
    forms: Mapping[TopicPartition, str],
    policy: OnOtherProgram,
    describe: Callable[[], GroupDescription],
    *,
    is_joining: bool = False,
) -> None:
    """Rejects a member if positions of its group belong to another program.

    Args:
        form: the form of the program of the member. Empty if it is unknown.
        forms: the forms of the positions.
        policy: the option ``onOtherProgram``.
        describe: returns the current description of the group. Called for an error, and before a takeover.
        is_joining: whether the member is about to join. A program takes the group over only then, if no member of the other one
            is live.

    Raises:
        ProgramMismatch: with both forms, the live members and the remedy.

    >>> p0 = TopicPartition("clicks", 0)
    >>> check_program("none", {p0: "windows:minutes"}, OnOtherProgram.FAIL, lambda: GroupDescription("clicks", "Empty"))
    Traceback (most recent call last):
    streamgroups.errors.ProgramMismatch: Group 'clicks' belongs to another program: the position of clicks-0 was committed by \
'windows:minutes', this program is 'none'. The group has no live member. Use another group.id. If this program replaces the other \
one: stop its members, and start this program once with onOtherProgram=continue. It continues at the positions of the other one; \
streamgroups groups reset clicks sets others.
    """
    others = other_forms(form, forms)
    if not others or (policy is OnOtherProgram.CONTINUE and not is_joining):
        return
    group = describe()
    reader = group.readers()
    if policy is OnOtherProgram.CONTINUE and all(reader(tp) is None for tp in others):
        return
    raise _mismatch(form, others, group)


def _mismatch(form: str, others: Mapping[TopicPartition, str], group: GroupDescription) -> ProgramMismatch:
    by_form: dict[str, list[TopicPartition]] = {}
    for tp, other in sorted(others.items()):
        by_form.setdefault(other, []).append(tp)
    differences = "; ".join(
        f"the position of {listed(tps, most=3)} was committed by '{printable(it)}'" for it, tps in by_form.items()
    )
    who = f"Its live members are {listed(group.members)}" if group.members else "The group has no live member"
    takes = (
        f"stop its members, and delete the group ({command('groups delete', [group.group_id])})"
        if form == CURSORS
        else "stop its members, and start this program once with onOtherProgram=continue. It continues at the positions of the "
        f"other one; {command('groups reset', [group.group_id])} sets others"
    )
    if any(_has_other_names(form, it) for it in by_form):
        takes += (
            f". For the state of operators with other names, create a savepoint before: "
            f"{command('savepoint create', [group.group_id])}, "
            "then streamgroups savepoint restore with --rename OLD=NEW or --without NAME"
        )
    return ProgramMismatch(
        f"Group '{group.group_id}' belongs to another program: {differences}, this program is '{printable(form)}'. {who}.",
        remedy=f"Use another group.id. If this program replaces the other one: {takes}.",
        group=group.group_id,
    )


def _has_other_names(form: str, other: str) -> bool:
    """Whether two programs have operators of this library, with different names."""
    mine, others = (_operators(it) for it in (form, other))
    return bool(mine and others and mine != others)


def _operators(form: str) -> frozenset[str]:
    """
    >>> sorted(_operators("spark:Aggregate + windows:minutes > windows:hours -> kafka:clicks"))
    ['windows:hours', 'windows:minutes']
    """
    before, _, _ = form.partition(" -> ")
    names = re.split(r" [+>] ", before)
    return frozenset(it for it in names if ":" in it and not it.startswith("spark:"))


def _shortened(form: str) -> str:
    if len(form) <= _MAX_LENGTH and len(quote(form, safe="")) <= _MAX_QUOTED_LENGTH:
        return form
    digest = hashlib.sha256(form.encode()).hexdigest()[:_HASH_DIGITS]
    end = _MAX_LENGTH - _HASH_DIGITS - 1
    while len(quote(shortened := f"{form[:end]}#{digest}", safe="")) > _MAX_QUOTED_LENGTH:
        end -= 10
    return shortened
