"""Translates errors of cursors for the command line.

Every command under ``cursors`` uses it. The errors of the Python API contain calls and arguments; the command line has
commands and options instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from streamgroups.errors import StreamGroupsError

_WORDS = {
    "create_group_cursor (or create_cursor)": "streamgroups cursors create",
    "create_group_cursor": "streamgroups cursors create",
    "create_cursor for one partition": "--partition",
    "create_cursor": "streamgroups cursors create",
    "get_messages": "streamgroups cursors get",
    "consumer_heartbeat": "streamgroups cursors heartbeat",
    "consumer_commit": "streamgroups cursors commit",
    "leave_group": "streamgroups cursors leave",
    "update_group (for example to TRIM_HORIZON)": "streamgroups groups reset",
    "update_group": "streamgroups groups reset",
    "lease_timeout_ms": "--lease-timeout in milliseconds",
    "group_name": "--group",
    "instance_name": "--instance",
    "one signing_key": "one --signing-key-file",
    "signing_key": "--signing-key-file",
    "Option 'time'": "--time",
    "'time'": "--time",
    "'offset'": "--offset",
    "time=...": "--time.",
    "offset=...": "--offset.",
}
_ANY = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?!\w)" for name in sorted(_WORDS, key=len, reverse=True)))


@contextmanager
def command_words() -> Iterator[None]:
    """Translates errors that are raised inside the ``with`` block.

    >>> with command_words():
    ...     raise StreamGroupsError("The cursor type AT_TIME requires 'time'.", remedy="Set time=...")
    Traceback (most recent call last):
    streamgroups.errors.StreamGroupsError: The cursor type AT_TIME requires --time. Set --time.
    """
    try:
        yield
    except StreamGroupsError as e:
        raise e.with_text(_translated(e.what), _translated(e.remedy)) from None


def _translated(text: str) -> str:
    return _ANY.sub(lambda match: _WORDS[match[0]], text)
