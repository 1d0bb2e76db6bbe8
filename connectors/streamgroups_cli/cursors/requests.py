"""The protocol between commands and the process of an instance: one line of JSON each way, over a local socket.

``streamgroups_cli.cursors.reading`` sends requests, and ``streamgroups_cli.cursors.instance_process`` responds. A
request contains a signed cursor, so a client without the key gets no data from the socket. Only the user can access its
directory, too.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamgroups.cursors.tokens import GroupCursor
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.message import Message
from streamgroups_cli.cursors.paths import instances

#: A request waits for a commit and for records. After this time, which exceeds all its timeouts together, an instance
#: hangs.
_TIMEOUT_S = 120.0
_ERRORS = {kind.code: kind for kind in StreamGroupsError.__subclasses__()}


def ask(instance: GroupCursor, request: dict[str, Any]) -> dict[str, Any]:
    """Sends one request to the process of an instance.

    Args:
        instance: the instance, from a cursor of it.
        request: the command and the cursor.

    Raises:
        FencedMember: if the process does not exist any more.
        StreamGroupsError: if it does not respond in time, or the error of its response.
    """
    link = instances() / instance.session
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(os.readlink(link))
            with connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = lines.readline()
    except ConnectionRefusedError:
        _clear_up(link)
        answer = ""
    except TimeoutError:
        raise StreamGroupsError(
            f"Instance '{instance.instance}' of group '{instance.group}' did not answer within {_TIMEOUT_S:g} s: its process hangs or is "
            "stopped.",
            remedy="End that process. Other members get its partitions after the session timeout.",
            group=instance.group,
        ) from None
    except OSError:
        answer = ""
    if not answer.endswith("\n"):
        raise FencedMember(
            f"Instance '{instance.instance}' of group '{instance.group}' is not on this machine: it has left, or its process "
            "was ended.",
            remedy="Create a new cursor with create_group_cursor. The group continues at its committed offsets.",
            group=instance.group,
        )
    read: dict[str, Any] = json.loads(answer)
    if "error" in read:
        raise error_of(read)
    return read


def _clear_up(link: Path) -> None:
    """Removes the files of an instance that was killed. An instance that ends by itself removes them itself."""
    with suppress(OSError):
        address = link.readlink()
        link.unlink()
        address.unlink()
        address.parent.rmdir()


def rejection(error: StreamGroupsError) -> dict[str, Any]:
    """Encodes an error as a response.

    >>> print(error_of(rejection(FencedMember("It left.", remedy="Join again."))))
    It left. Join again.
    """
    about = {"group": error.group, "topic": error.topic, "partition": error.partition}
    return {"error": error.code, "what": error.what, "remedy": error.remedy, "about": about}


def error_of(answer: dict[str, Any]) -> StreamGroupsError:
    """Decodes the error of a response."""
    return _ERRORS.get(answer["error"], StreamGroupsError)(answer["what"], remedy=answer["remedy"], **answer["about"])


def to_json(message: Message) -> list[Any]:
    """Encodes a message as a part of a response.

    >>> message = Message("flights", 3, 42, None, None, b"\\xff", (("h", b""), ("h", None)))
    >>> from_json(json.loads(json.dumps(to_json(message)))) == message
    True
    """
    place = [message.topic, message.partition, message.offset, message.timestamp_ms]
    headers = [[name, _text(value)] for name, value in message.headers]
    return [*place, _text(message.key), _text(message.value), headers]


def from_json(row: list[Any]) -> Message:
    """Decodes a message."""
    topic, partition, offset, timestamp_ms, key, value, headers = row
    whole = tuple((name, _bytes(text)) for name, text in headers)
    return Message(topic, partition, offset, timestamp_ms, _bytes(key), _bytes(value), whole)


def _text(field: bytes | None) -> str | None:
    return None if field is None else base64.b64encode(field).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
