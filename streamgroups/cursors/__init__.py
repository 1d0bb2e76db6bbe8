"""Group cursors: leases, tokens, admission and positions.

An instance of ``GroupCursors`` is the same ``KafkaMember``, with a second consumer that joins no group and reads what
the member owns. A cursor contains the state of a request: the positions of its instance, and the ownership epoch of
each partition. So a request can be repeated, and a cursor from before a handover or a reset commits nothing. Messages
that were returned and not committed are the member's batch in flight, for which a handover waits. Each instance has one
thread. A second thread checks leases five times a second and ends instances without requests. On the command line an
instance is a background process, to which the commands pass their cursors
(``streamgroups_cli/cursors/instance_process``).

Users import the names below as ``sg.cursors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.cursors.group_state import GroupState as GroupState
    from streamgroups.cursors.starting_position import CursorType as CursorType
    from streamgroups.message import Message as Message
    from streamgroups_kafka.cursors.group_cursors import GroupCursors as GroupCursors

    AFTER_OFFSET = CursorType.AFTER_OFFSET
    AT_OFFSET = CursorType.AT_OFFSET
    AT_TIME = CursorType.AT_TIME
    LATEST = CursorType.LATEST
    TRIM_HORIZON = CursorType.TRIM_HORIZON

_PLACES = places(
    {
        "streamgroups.cursors.starting_position:CursorType": "AFTER_OFFSET AT_OFFSET AT_TIME LATEST TRIM_HORIZON",
        "streamgroups.cursors.starting_position": "CursorType",
        "streamgroups_kafka.cursors.group_cursors": "GroupCursors",
        "streamgroups.cursors.group_state": "GroupState",
        "streamgroups.message": "Message",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
