"""The requests of commands to the process of an instance.

``streamgroups_cli.cursors.reading`` sends them, and ``streamgroups_cli.cursors.instance_process`` responds. Only a
process with the key that signs cursors receives a response. Only the user can access the directory, too.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamgroups.cursors.cursor_tokens import GroupCursor
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups_cli.cursors.paths import instances
from streamgroups_spark.bridge.sockets import call

#: A request waits for a commit and for records. After this time, which exceeds all its timeouts together, an instance
#: hangs.
TIMEOUT_S = 120.0


def connection_key(signing_key: bytes) -> bytes:
    """Returns the shared key of the commands and the process of an instance. It signs no cursors."""
    return hmac.digest(signing_key, b"streamgroups instance", "sha256")


def request_instance(instance: GroupCursor, signing_key: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """Sends one request to the process of an instance.

    Args:
        instance: the instance, from a cursor of it.
        signing_key: the key that signs its cursors.
        request: the command and the cursor.

    Raises:
        FencedMember: if the process does not exist any more.
        StreamGroupsError: if it does not respond in time or cannot be reached, or the error of its response.
    """
    link = instances() / instance.session
    try:
        response: dict[str, Any] = call(link.readlink(), connection_key(signing_key), request, TIMEOUT_S)
    except TimeoutError:
        raise StreamGroupsError(
            f"Instance '{instance.instance}' of group '{instance.group}' did not answer within {TIMEOUT_S:g} s: its process hangs or is "
            "stopped.",
            remedy="End that process. Other members get its partitions after the session timeout.",
            group=instance.group,
        ) from None
    except OSError as e:
        raise _error_of(e, instance, link) from None
    return response


def _error_of(error: OSError, instance: GroupCursor, link: Path) -> StreamGroupsError:
    # A process that ends removes its socket, and then closes it.
    has_ended = isinstance(error, ConnectionError) and not link.exists()
    if isinstance(error, FileNotFoundError | ConnectionRefusedError) or has_ended:
        if isinstance(error, ConnectionRefusedError):
            _clear_up(link)
        return FencedMember(
            f"Instance '{instance.instance}' of group '{instance.group}' is not on this machine: it has left, or its process "
            "was ended.",
            remedy="Create a new cursor with create_group_cursor. The group continues at its committed offsets.",
            group=instance.group,
        )
    # The process can be live: a second instance of its name would be rejected (SEMANTICS G3).
    return StreamGroupsError(
        f"The process of instance '{instance.instance}' of group '{instance.group}' could not be reached: {error.strerror or error}. It "
        "is unknown whether the instance is live.",
        remedy="Run the command as the user of that process and with its signing_key. Otherwise try again: if the instance has "
        "left, the error reports it.",
        group=instance.group,
    )


def _clear_up(link: Path) -> None:
    """Removes the files of an instance that was killed. An instance that ends by itself removes them itself."""
    with suppress(OSError):
        address = link.readlink()
        link.unlink()
        address.unlink()
        address.parent.rmdir()
