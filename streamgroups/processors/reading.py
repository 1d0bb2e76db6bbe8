"""Creates a processor from a tree of values, and reports all problems of the tree at once.

Called by ``streamgroups_spark.processors.yaml_text`` for files, and for Python objects by ``sg.processor``. A part with a
problem is left out, so that the rules are applied to the other parts. Source: SEMANTICS P1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.processors.arguments import NothingLoaded, arguments_of
from streamgroups.processors.problems import Problem, check
from streamgroups.processors.processor import (
    FunctionCall,
    Processor,
    Sink,
    SinkKind,
    Source,
    Sql,
    Step,
    UserFunction,
)
from streamgroups.processors.rules import broken_rules
from streamgroups.processors.schema import definition, schema
from streamgroups.processors.schema_checks import differences
from streamgroups.processors.storable_values import unstorable
from streamgroups.processors.values import NO_LINE, Entry, Items, Node, Scalar, Table, node_of, plain

_KINDS = {"table": SinkKind.POSTGRES, "uri": SinkKind.DELTA, "format": SinkKind.SPARK}
_LIMITS = ("max_per_batch", "max_share", "share_from_records")


def read_processor(tree: Node, file: str = "") -> tuple[Processor | None, tuple[Problem, ...]]:
    """Returns the processor of a tree, or all its problems. Values that cannot be stored are reported first, without others.

    Args:
        tree: the values of a file or of a Python object.
        file: the name of the file, for problems; empty without one.

    >>> read_processor(node_of({"name": "late"}))[1][0].what
    "Key 'source' is missing."
    """
    # An error about another mistake could contain such a value, and cannot be printed.
    if unstored := tuple(unstorable(tree)):
        return None, tuple(sorted(replace(it, file=file) for it in unstored))
    problems = [*differences(tree, schema())]
    processor = Processor("unnamed", Source(""))
    if isinstance(tree, Table):
        valid = _without(tree, {it.field for it in problems})
        processor = _processor(valid if isinstance(valid, Table) else Table(()), file)
        invalid = {it.field for it in problems if it.field}
        found = [*broken_rules(processor, _lines(tree)), *_invalid_arguments(processor, invalid)]
        # A missing or invalid part can break rules too: its own problem is enough.
        problems += [it for it in found if not any(_is_part(it.field, of) for of in invalid)]
    if problems:
        return None, tuple(sorted({replace(it, file=file) for it in problems}))
    return processor, ()


def processor_of(value: Processor | Mapping[str, Any] | Node, file: str = "") -> Processor:
    """Returns the processor of a Python object or of a tree.

    Args:
        value: a mapping with the keys of a file, in which a function can also be the function itself; a tree; or a processor.
        file: the name of the file, for errors; empty without one.

    Raises:
        InvalidProcessor: with all problems.

    >>> processor_of({"name": "late", "source": {"connection": "prod", "subscribe": "flights"}}).source.topics
    ('flights',)
    """
    if isinstance(value, Processor):
        return value
    tree = value if isinstance(value, (Scalar, Items, Table)) else node_of(value)
    processor, problems = read_processor(tree, file)
    check(problems)
    assert processor is not None
    return processor


def _is_part(field: str, of: str) -> bool:
    return field == of or field.startswith((f"{of}.", f"{of}["))


def _without(node: Node, fields: set[str], field: str = "") -> Node | None:
    """The tree without the parts that have problems."""
    if field in fields and field:
        return None
    if isinstance(node, Table):
        entries = []
        for it in node.entries:
            inner = _without(it.value, fields, f"{field}.{it.key}" if field else it.key)
            if inner is not None:
                entries.append(Entry(it.key, inner, it.line))
        return Table(tuple(entries), node.line)
    if isinstance(node, Items):
        # A step that is left out keeps its number.
        none = Table((), node.line)
        return Items(tuple(_without(it, fields, f"{field}[{n}]") or none for n, it in enumerate(node.items)), node.line)
    return node


def _lines(tree: Table) -> Callable[..., int]:
    """Returns the line of a field by its keys, or of its nearest part that exists."""
    known = dict(_lines_of(tree))

    def line(*path: str | int) -> int:
        field, last = "", tree.line
        for key in path:
            field += f"[{key}]" if isinstance(key, int) else f".{key}" if field else key
            last = known.get(field, last)
        return last

    return line


# ---- the parts of a processor ----------------------------------------------------------------------------------------


def _processor(tree: Table, file: str) -> Processor:
    """Creates a processor. Parts can be missing."""
    steps = tree.get("steps")
    letters = _table(tree, "dead_letters")
    limits = {it.key: plain(it.value) for it in letters.entries if it.key in _LIMITS}
    letters_sink = Table(tuple(it for it in letters.entries if it.key not in _LIMITS))
    given = {key: plain(it) for key in ("replicas", "checkpoint", "trigger") if (it := tree.get(key)) is not None}
    return Processor(
        str(_text(tree, "name") or "unnamed"),
        _source(_table(tree, "source")),
        tuple(map(_step, steps.items)) if isinstance(steps, Items) else (),
        _sink(_table(tree, "sink")) if tree.get("sink") is not None else None,
        dead_letters=_sink(letters_sink) if tree.get("dead_letters") is not None else None,
        letter_limits=limits,
        file=file,
        lines=dict(_lines_of(tree)),
        **given,
    )


def _lines_of(node: Node, field: str = "") -> Iterator[tuple[str, int]]:
    """The line of each field."""
    if isinstance(node, Table):
        for it in node.entries:
            inner = f"{field}.{it.key}" if field else it.key
            yield inner, it.line
            yield from _lines_of(it.value, inner)
    elif isinstance(node, Items):
        for number, item in enumerate(node.items):
            yield f"{field}[{number}]", item.line
            yield from _lines_of(item, f"{field}[{number}]")


def _table(tree: Table, key: str) -> Table:
    found = tree.get(key)
    return found if isinstance(found, Table) else Table(())


def _text(tree: Table, key: str) -> str | None:
    found = tree.get(key)
    return found.text if isinstance(found, Scalar) else None


def _source(tree: Table) -> Source:
    options = {it.key: it.value.text for it in tree.entries if isinstance(it.value, Scalar) and it.key != "connection"}
    repartitioned = tree.get("read_repartitioned")
    whole = isinstance(repartitioned, Table) and "topic" in repartitioned.keys
    return Source(_text(tree, "connection") or "", options, plain(repartitioned) if whole and repartitioned else None)


def _sink(tree: Table) -> Sink:
    kind = next((kind for key, kind in _KINDS.items() if key in tree.keys), SinkKind.KAFKA)
    arguments = {it.key: plain(it.value) for it in tree.entries if it.key != "connection"}
    return Sink(kind, _text(tree, "connection"), arguments)


def _step(node: Node) -> Step:
    if not isinstance(node, Table) or not node.entries:
        return Sql("SELECT * FROM input", NO_LINE if isinstance(node, Items) else node.line)
    entry = node.entries[0]
    if entry.key == "sql":
        return Sql(str(plain(entry.value)), entry.line)
    if entry.key == "function":
        return UserFunction(plain(entry.value), entry.line)
    given = plain(entry.value)
    return FunctionCall(entry.key, given if isinstance(given, dict) else {}, entry.line)


# ---- the arguments of steps ------------------------------------------------------------------------------------------


def _invalid_arguments(processor: Processor, invalid: set[str]) -> list[Problem]:
    """The values of single arguments that their constructors reject, such as a hop that is longer than its window."""
    found = []
    for number, step in enumerate(processor.steps):
        if not isinstance(step, FunctionCall) or step.name not in schema()["$defs"]:
            continue
        known = definition(step.name)["properties"]
        for name, value in step.arguments.items():
            field = f"steps[{number}].{step.name}.{name}"
            if name not in known or any(_is_part(it, field) for it in invalid):
                continue
            try:
                arguments_of(step.name, {name: value}, NothingLoaded())
            except InvalidOption as e:
                found.append(Problem(step.line, field, e.what, e.remedy))
    return found
