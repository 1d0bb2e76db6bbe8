"""The JSON forms of the entries of the topic of an instance.

Written and read by ``streamgroups_kafka.instances``. Each principal with Write on the topic can write any record, so parsing is
strict: an invalid record is an error of this record only. Source: :mod:`streamgroups.instances`; Kafka's log compaction, where
a record without a value removes its key.

Keys and values, version 1::

    definition/late-flights   {"v": 1, "document": {"name": "late-flights", "source": {...}, ...}}
    desired/late-flights      {"v": 1, "running": true, "request": 3}
    placement/late-flights/0  {"v": 1, "worker": "w12", "number": 13, "request": 3}
    observed/late-flights/0   {"v": 1, "worker": "w12", "number": 13, "request": 3, "state": "running", "since_ms": 1732334400000, ...}
    worker/w12                {"v": 1, "slots": 4, "since_ms": 1732334390000, "managed": true, "heartbeat": 7, ...}
    release/w12               {"v": 1, "reason": "it has had no processor for 60 s"}
    manager                   {"v": 1, "next_number": 14, "heartbeat": 7, "host": "a", "pid": 4700, "since_ms": ..., ...}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from streamgroups.instances.entries import (
    MAX_NUMBER,
    MAX_REPLICAS,
    MAX_SLOTS,
    Definition,
    Desired,
    Entry,
    Fact,
    Manager,
    Observation,
    Observed,
    Placement,
    Progress,
    Release,
    Removed,
    Replica,
    Worker,
    canonical,
    is_name,
)
from streamgroups.json_values import flag, items, read_json, string, string_or_none, time_ms, time_ms_or_none, whole

_VERSION = 1
#: The largest definition in characters, below the default ``max.message.bytes`` of a topic.
MAX_DOCUMENT = 500_000
_MAX_LEASE_MS = 86_400_000


def key_of(entry: Entry) -> str:
    """The key of an entry.

    >>> key_of(Placement(Replica("late", 0), "w1", 2, 1)), key_of(Release("w1", "idle"))
    ('placement/late/0', 'release/w1')
    """
    match entry:
        case Removed(kind=kind, of=of):
            return f"{kind}/{of}" if of else kind
        case Definition():
            return f"definition/{entry.processor}"
        case Desired():
            return f"desired/{entry.processor}"
        case Placement():
            return f"placement/{entry.replica}"
        case Observation():
            return f"observed/{entry.placement.replica}"
        case Worker():
            return f"worker/{entry.id}"
        case Release():
            return f"release/{entry.worker}"
    return "manager"


def write_entry(entry: Entry) -> tuple[bytes, bytes | None]:
    """The key and the value of the record of an entry.

    >>> write_entry(Desired("late", True, 3))
    (b'desired/late', b'{"v":1,"running":true,"request":3}')
    >>> write_entry(Removed("desired", "late"))
    (b'desired/late', None)
    """
    if isinstance(entry, Removed):
        return key_of(entry).encode(), None
    fields = {name: value for name, value in {"v": _VERSION, **_fields(entry)}.items() if value is not None}
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    # A question mark replaces half of a surrogate pair, which UTF-8 does not have.
    return key_of(entry).encode(), text.encode("utf-8", "replace")


def read_entry(key: bytes | None, value: bytes | None) -> Entry:
    """Parses a record.

    Args:
        key: the key of the record.
        value: its value.

    Raises:
        ValueError: if it is not an entry, or has a newer version.

    >>> read_entry(b"desired/late", b'{"v":1,"running":true,"request":3}')
    Desired(processor='late', is_running=True, request=3)
    >>> read_entry(b"desired/late", b'{"v":1,"running":1,"request":3}')
    Traceback (most recent call last):
    ValueError: 1 is neither true nor false
    """
    kind, *names = (b"" if key is None else key).decode().split("/")
    if kind not in _READERS or len(names) != _PARTS[kind]:
        raise ValueError("its key is not that of an entry")
    if names and not is_name(names[0]):
        raise ValueError("its key contains an invalid name")
    of = Replica(names[0], _index(names[1])) if len(names) > 1 else names[0] if names else ""
    if value is None:
        return Removed(kind, of)
    fields = dict(items(read_json(value.decode())))
    if fields.get("v") != _VERSION or type(fields["v"]) is not int:
        raise ValueError("it has no version, or a newer one")
    try:
        return _READERS[kind](of, fields)
    except KeyError as e:
        raise ValueError(f"the field {e} is missing") from None


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 2 and text == str(int(text))):
        raise ValueError("its key contains an invalid number of a replica")
    return whole(int(text), most=MAX_REPLICAS - 1)


def _fields(entry: Fact) -> dict[str, Any]:
    match entry:
        case Definition():
            return {"document": json.loads(entry.document)}
        case Desired():
            return {"running": entry.is_running, "request": entry.request}
        case Placement():
            return {"worker": entry.worker, "number": entry.number, "request": entry.request}
        case Observation():
            return _observation_fields(entry)
        case Worker():
            of_worker = {"slots": entry.slots, "since_ms": entry.since_ms, "managed": entry.is_managed}
            return {**of_worker, **_process_fields(entry)}
        case Release():
            return {"reason": entry.reason}
    of_manager = {"next_number": entry.next_number, "since_ms": entry.since_ms, "max_workers": entry.max_workers}
    return {**of_manager, **_process_fields(entry)}


def _process_fields(entry: Worker | Manager) -> dict[str, Any]:
    return {
        "heartbeat": entry.heartbeat,
        "at_ms": entry.at_ms,
        "lease_ms": entry.lease_ms,
        "host": entry.host,
        "pid": entry.pid,
    }


def _observation_fields(entry: Observation) -> dict[str, Any]:
    progress = entry.progress
    return {
        **_fields(entry.placement),
        "state": entry.state.value,
        "since_ms": entry.since_ms,
        "revision": entry.revision,
        "error_code": entry.error_code,
        "error": entry.error,
        "progress": None
        if progress is None
        else {
            "batch": progress.batch,
            "rows_per_s": progress.rows_per_s,
            "lag": progress.lag,
            "watermark_ms": progress.watermark_ms,
            "duration_ms": progress.duration_ms,
        },
    }


def read_definition(name: str, fields: Mapping[str, Any]) -> Definition:
    """Returns a definition of its value.

    Args:
        name: the name of the processor.
        fields: ``document`` is the definition.

    Raises:
        ValueError: if the definition has another name, too many replicas, or is too large.

    >>> read_definition("late", {"document": {"name": "late", "replicas": 2}}).replicas
    2
    """
    document = dict(items(fields["document"]))
    text = string(canonical(document), most=MAX_DOCUMENT)
    if document.get("name") != name:
        raise ValueError("the name in the definition is not that of its key")
    return Definition(name, text, whole(document.get("replicas", 1), least=1, most=MAX_REPLICAS))


def _read_desired(name: Any, fields: Mapping[str, Any]) -> Desired:
    return Desired(name, flag(fields["running"]), _number(fields["request"]))


def _read_placement(replica: Any, fields: Mapping[str, Any]) -> Placement:
    return Placement(replica, _worker_id(fields["worker"]), _number(fields["number"]), _number(fields["request"]))


def _read_observation(replica: Any, fields: Mapping[str, Any]) -> Observation:
    progress = fields.get("progress")
    return Observation(
        _read_placement(replica, fields),
        Observed(string(fields["state"])),
        time_ms(fields["since_ms"]),
        string(fields["revision"], most=100),
        string_or_none(fields.get("error_code")),
        string_or_none(fields.get("error")),
        None if progress is None else _read_progress(dict(items(progress))),
    )


def _read_progress(fields: Mapping[str, Any]) -> Progress:
    lag, duration_ms = fields.get("lag"), fields.get("duration_ms")
    return Progress(
        whole(fields["batch"]),
        whole(fields["rows_per_s"]),
        None if lag is None else whole(lag),
        time_ms_or_none(fields.get("watermark_ms")),
        None if duration_ms is None else whole(duration_ms),
    )


def _read_worker(name: Any, fields: Mapping[str, Any]) -> Worker:
    return Worker(
        id=name,
        slots=whole(fields["slots"], least=1, most=MAX_SLOTS),
        since_ms=time_ms(fields["since_ms"]),
        heartbeat=whole(fields["heartbeat"]),
        at_ms=time_ms(fields["at_ms"]),
        lease_ms=whole(fields["lease_ms"], least=1, most=_MAX_LEASE_MS),
        host=string(fields["host"], most=255),
        pid=whole(fields["pid"]),
        is_managed=flag(fields["managed"]),
    )


def _read_release(name: Any, fields: Mapping[str, Any]) -> Release:
    return Release(name, string(fields["reason"]))


def _read_manager(_name: Any, fields: Mapping[str, Any]) -> Manager:
    return Manager(
        next_number=_number(fields["next_number"]),
        heartbeat=whole(fields["heartbeat"]),
        at_ms=time_ms(fields["at_ms"]),
        since_ms=time_ms(fields["since_ms"]),
        lease_ms=whole(fields["lease_ms"], least=1, most=_MAX_LEASE_MS),
        max_workers=whole(fields["max_workers"], most=10_000),
        host=string(fields["host"], most=255),
        pid=whole(fields["pid"]),
    )


def _number(value: Any) -> int:
    return whole(value, least=1, most=MAX_NUMBER)


def _worker_id(value: Any) -> str:
    if not is_name(text := string(value)):
        raise ValueError("the id of the worker is invalid")
    return text


#: The parser of each kind of entry.
_READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Fact]] = {
    "definition": read_definition,
    "desired": _read_desired,
    "placement": _read_placement,
    "observed": _read_observation,
    "worker": _read_worker,
    "release": _read_release,
    "manager": _read_manager,
}
#: The number of parts of the key after its kind.
_PARTS = {"definition": 1, "desired": 1, "placement": 2, "observed": 2, "worker": 1, "release": 1, "manager": 0}
