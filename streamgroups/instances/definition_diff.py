"""The difference between the definitions of an instance and those of a directory.

``streamgroups processors apply`` prints it before it changes anything. A change of a step with state is named apart, because the
next run can fail with ``StateMismatch``. Source: SEMANTICS P2; ``kubectl diff``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroups.instances.entries import Definition
from streamgroups.instances.instance_state import InstanceState

#: The steps whose state follows its partition (SEMANTICS S10).
_WITH_STATE = ("windows", "dedup", "join", "stateful")
_MAX_SHOWN = 100


class Kind(str, Enum):
    """The kind of a difference."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    #: The instance has it, and the directory does not.
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value of a definition.

    Args:
        path: its place, such as ``steps[3].windows.watermark_delay``.
        before: the value as JSON; ``None`` if it is new.
        after: the value as JSON; ``None`` if it was removed.
    """

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        before, after = _shown(self.before), _shown(self.after)
        if self.before is None:
            return f"{self.path}: added {after}"
        return f"{self.path}: removed {before}" if self.after is None else f"{self.path}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one processor.

    Args:
        processor: its name.
        kind: the kind.
        is_running: whether the processor should run. A change restarts it.
        changes: the changed values.
        warnings: the consequences for its states, with the remedy.
        is_outdated: whether its query has an earlier definition than the instance.
    """

    processor: str
    kind: Kind
    is_running: bool
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    is_outdated: bool = False

    @property
    def is_restarted(self) -> bool:
        """Whether the processor restarts. An interrupted command has stored a definition without a request to restart."""
        return self.is_running and (self.kind is Kind.CHANGED or (self.kind is Kind.UNCHANGED and self.is_outdated))


def differences(state: InstanceState, definitions: Mapping[str, Definition]) -> tuple[Difference, ...]:
    """Compares definitions with those of an instance.

    Args:
        state: the state of the instance.
        definitions: the definitions of the directory, by the names of their processors.

    >>> from streamgroups.instances.entries import canonical
    >>> late = Definition("late", canonical({"name": "late", "steps": [{"windows": {"on": "dep"}}]}))
    >>> dep = Definition("late", canonical({"name": "late", "steps": [{"windows": {"on": "arr"}}]}))
    >>> found = differences(InstanceState(definitions={"late": late}), {"late": dep})[0]
    >>> str(found.changes[0])
    'steps[0].windows.on: "dep" -> "arr"'
    >>> print(found.warnings[0])
    Step 'windows' has state, and its definition changes. If the next run fails with state_mismatch, set a new 'name' of the step, \
and onMissingState=empty of the source for the first start.
    """
    return tuple(
        _difference(state, name, state.definitions.get(name), definitions.get(name))
        for name in sorted(state.definitions.keys() | definitions.keys())
    )


def _difference(state: InstanceState, name: str, before: Definition | None, after: Definition | None) -> Difference:
    desired = state.desired.get(name)
    is_running = desired is not None and desired.is_running and before is not None
    if after is None:
        return Difference(name, Kind.MISSING, is_running)
    if before is None:
        return Difference(name, Kind.ADDED, is_running)
    if before.document == after.document:
        return Difference(name, Kind.UNCHANGED, is_running, is_outdated=_is_outdated(state, before))
    old, new = json.loads(before.document), json.loads(after.document)
    return Difference(name, Kind.CHANGED, is_running, tuple(_changes(old, new, "")), tuple(_warnings(old, new)))


def _is_outdated(state: InstanceState, definition: Definition) -> bool:
    """Whether a worker has observed another revision, for the current request. A later start reads the current one."""
    seen = [state.current(it) for it in state.replicas(definition.processor)]
    return any(it is not None and it.revision not in ("", definition.revision) for it in seen)


def _changes(before: Any, after: Any, path: str) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _changes(before.get(key, _NOTHING), after.get(key, _NOTHING), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list):
        for i in range(max(len(before), len(after))):
            yield from _changes(_item(before, i), _item(after, i), f"{path}[{i}]")
    elif _json(before) != _json(after):
        yield Change(path, _json(before), _json(after))


class _Nothing:
    """No value. ``None`` is JSON's null."""


_NOTHING = _Nothing()


def _item(items: list[Any], i: int) -> Any:
    return items[i] if i < len(items) else _NOTHING


def _json(value: Any) -> str | None:
    # 1, 1.0 and true are equal in Python, and different texts.
    return None if value is _NOTHING else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _warnings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    old, new = _states(before), _states(after)
    for label, definition in old.items():
        if label not in new:
            yield (
                f"Step {label} has state, and is removed. The group then belongs to another program: start it once with "
                "onOtherProgram=continue of the source."
            )
        elif new[label] != definition:
            yield (
                f"Step {label} has state, and its definition changes. If the next run fails with state_mismatch, set a new "
                "'name' of the step, and onMissingState=empty of the source for the first start."
            )
    for label in new.keys() - old.keys():
        yield (
            f"Step {label} has state, and is new. Its state is missing at the positions of the group: set "
            "onMissingState=empty and onOtherProgram=continue of the source for the first start."
        )


def _states(document: Mapping[str, Any]) -> dict[str, str | None]:
    """The steps with state, by their labels, each as JSON."""
    found: dict[str, str | None] = {}
    steps = document.get("steps")
    for step in steps if isinstance(steps, list) else ():
        for kind, arguments in step.items() if isinstance(step, dict) else ():
            if kind in _WITH_STATE:
                name = arguments.get("name") if isinstance(arguments, dict) else None
                found[f"'{kind}'" if name is None else f"'{kind}' with name '{name}'"] = _json(arguments)
    return found


def _shown(value: str | None) -> str:
    text = value or ""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
