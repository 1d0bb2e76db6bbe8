"""What commands and an instance's process say to each other: one line of JSON each way, over a socket of this machine.

Used by ``using`` (which asks) and ``instance_process`` (which answers). A request carries a signed cursor, so nobody without the key
gets anything out of the socket; the directory that it is in lets in nobody but the user either.
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

#: A request waits for a commit and for records; an instance that takes longer than all its own time-outs together hangs.
_TIMEOUT_S = 120.0
_ERRORS = {kind.code: kind for kind in StreamGroupsError.__subclasses__()}


def ask(instance: GroupCursor, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the process that is an instance.

    Args:
        instance: which; what a cursor of it says.
        request: what to do, and the cursor itself.

    Raises:
        FencedMember: if there is no such process any more.
        StreamGroupsError: if it does not answer in time, or what it answered.
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
    """What an instance does that ends by itself; one that was killed could not."""
    with suppress(OSError):
        address = link.readlink()
        link.unlink()
        address.unlink()
        address.parent.rmdir()


def rejection(error: StreamGroupsError) -> dict[str, Any]:
    """An error, as an answer.

    >>> print(error_of(rejection(FencedMember("It left.", remedy="Join again."))))
    It left. Join again.
    """
    about = {"group": error.group, "topic": error.topic, "partition": error.partition}
    return {"error": error.code, "what": error.what, "remedy": error.remedy, "about": about}


def error_of(answer: dict[str, Any]) -> StreamGroupsError:
    """The error that an answer tells of."""
    return _ERRORS.get(answer["error"], StreamGroupsError)(answer["what"], remedy=answer["remedy"], **answer["about"])


def to_json(message: Message) -> list[Any]:
    """A message, as a part of an answer.

    >>> message = Message("flights", 3, 42, None, None, b"\\xff", (("h", b""), ("h", None)))
    >>> from_json(json.loads(json.dumps(to_json(message)))) == message
    True
    """
    place = [message.topic, message.partition, message.offset, message.timestamp_ms]
    headers = [[name, _text(value)] for name, value in message.headers]
    return [*place, _text(message.key), _text(message.value), headers]


def from_json(row: list[Any]) -> Message:
    """The message again."""
    topic, partition, offset, timestamp_ms, key, value, headers = row
    whole = tuple((name, _bytes(text)) for name, text in headers)
    return Message(topic, partition, offset, timestamp_ms, _bytes(key), _bytes(value), whole)


def _text(field: bytes | None) -> str | None:
    return None if field is None else base64.b64encode(field).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
