"""Parses the text of a processor file into a tree of values with their lines.

Called by ``sg.processor``, the command line and instances. The values are those of YAML 1.2: a text is a text unless it is
exactly ``true``, ``false``, ``null`` or a number, so ``on``, ``no``, ``1:30`` and dates stay texts. Everything that makes a file
ambiguous is rejected: duplicate keys, anchors, merge keys, tags, several documents. PyYAML's events are used, and not its
constructors. Source: YAML 1.2.2, core schema (10.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from streamgroups.extras import load
from streamgroups.processors.problems import Problem, shown
from streamgroups.processors.processor import Processor
from streamgroups.processors.reading import read_processor
from streamgroups.processors.values import Entry, Items, Node, Scalar, Table
from streamgroups_spark.processors.option_checks import invalid_options

_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 32
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_OCTAL, _HEX = re.compile(r"0o([0-7]{1,30})"), re.compile(r"0x([0-9a-fA-F]{1,30})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,30}|[0-9]{1,30}(?:\.[0-9]{0,30})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read_text(content: bytes, file: str) -> tuple[Processor | None, tuple[Problem, ...]]:
    """Returns the processor of a file, or all problems of the file.

    Args:
        content: the content of the file.
        file: its name, for problems.

    Raises:
        MissingExtra: if PyYAML is not installed.

    >>> text = b"name: late\\nsource: {connection: prod, subscribe: on}\\nsteps: [{sql: SELECT 1 FROM input}]"
    >>> read_text(text, "late.yaml")[0].source.topics
    ('on',)
    >>> print(read_text(b"name: late\\nname: later", "late.yaml")[1][-1])
    late.yaml:2: Key 'name' is there twice: it is also in line 1. Remove one of them.
    """
    problems: list[Problem] = []
    tree = None
    try:
        tree = _tree(content, problems)
    except _Unreadable as e:
        problems.append(e.problem)
    processor = None
    if tree is not None:
        processor, found = read_processor(tree, file)
        problems += found
    if processor is not None and not problems:
        problems += invalid_options(processor)
    # An anchor or a duplicate key can be the cause of other problems, so all of them are reported.
    named = {Problem(it.line, it.field, it.what, it.remedy, file) for it in problems}
    return (None if named else processor), tuple(sorted(named))


class _Unreadable(Exception):
    """The text cannot be read further."""

    def __init__(self, line: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.problem = Problem(line, "", what, remedy)


def _tree(content: bytes, problems: list[Problem]) -> Node | None:
    if len(content) > _MAX_BYTES:
        what = f"The file has {len(content):,} bytes, and the maximum is {_MAX_BYTES:,}."
        raise _Unreadable(0, what, "A processor is a short file. Check its name.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise _Unreadable(line, "The file is not UTF-8 text.", "Save it as UTF-8.") from None
    yaml = load("yaml", needed_by="a processor file")
    try:
        return _Parser(yaml, text, problems).document()
    except yaml.MarkedYAMLError as e:
        raise _syntax(e, text) from None
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1
        code = e.character if isinstance(e.character, int) else ord(e.character)
        what = f"The character U+{code:04X} is not allowed."
        raise _Unreadable(line, what, "Remove it.") from None


def _syntax(error: Any, text: str) -> _Unreadable:
    mark = error.problem_mark or error.context_mark
    line = 1 if mark is None else mark.line + 1
    lines = text.splitlines()
    given = lines[line - 1] if line <= len(lines) else ""
    if "\t" in str(error.problem) or "\\t" in str(error.problem) or "\t" in given[: len(given) - len(given.lstrip())]:
        return _Unreadable(line, "A tab is not allowed.", "Use spaces.")
    what = f"The file is not YAML: {str(error.problem or error.context).rstrip('.')}."
    remedy = "Correct the line."
    if "mapping values are not allowed" in what:
        remedy = "Put a value that contains ': ' in quotes."
    elif "'@'" in what or "'`'" in what or "'%'" in what:
        remedy = "Put the value in quotes."
    return _Unreadable(line, what, remedy)


class _Parser:
    """Builds the tree of one document from PyYAML's events."""

    def __init__(self, yaml: Any, text: str, problems: list[Problem]) -> None:
        self._yaml, self._problems = yaml, problems
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)

    def document(self) -> Node | None:
        """Returns the tree; ``None`` for an empty file, which is a problem."""
        events = self._yaml.events
        tree = None
        documents = 0
        for event in self._events:
            if isinstance(event, events.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Unreadable(
                        _line(event), "The file has several documents.", "Use one file for each processor."
                    )
                if event.version or event.tags:
                    self._add(event, "A directive is not allowed.", "Remove the line that begins with '%'.")
                tree = self._node(next(self._events), 1)
        empty = isinstance(tree, Scalar) and tree.value is None
        if tree is None or empty:
            raise _Unreadable(1, "The file is empty.", "Write a processor, with 'name', 'source', 'steps' and 'sink'.")
        return tree

    def _node(self, event: Any, depth: int) -> Node:
        events = self._yaml.events
        if depth > _MAX_DEPTH:
            raise _Unreadable(
                _line(event), f"Values are nested more than {_MAX_DEPTH} levels deep.", "Reduce the levels."
            )
        if isinstance(event, events.AliasEvent):
            self._add(event, f"The alias '*{shown(event.anchor)}' is not allowed.", "Write the value again.")
            return Scalar(None, "", _line(event))
        if event.anchor is not None:
            self._add(event, f"The anchor '&{shown(event.anchor)}' is not allowed.", "Remove it.")
        if event.tag is not None and event.tag != "!":
            self._add(
                event, f"The tag '{shown(event.tag)}' is not allowed.", "Remove it. Quotes make any value a text."
            )
        if isinstance(event, events.ScalarEvent):
            return _scalar(event)
        if isinstance(event, events.SequenceStartEvent):
            return self._items(event, depth)
        return self._table(event, depth)

    def _items(self, start: Any, depth: int) -> Items:
        items = []
        while not isinstance(event := next(self._events), self._yaml.events.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Items(tuple(items), _line(start))

    def _table(self, start: Any, depth: int) -> Table:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self._events), self._yaml.events.MappingEndEvent):
            key, line = self._node(event, depth + 1), _line(event)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar):
                self._problems.append(
                    Problem(line, "", "A list or a table is not a key.", "Write a name before the colon.")
                )
            elif key.text == "<<":
                self._problems.append(Problem(line, "", "A merge key '<<' is not allowed.", "Write the keys again."))
            elif key.text in entries:
                what = f"Key '{shown(key.text)}' is there twice: it is also in line {entries[key.text].line}."
                self._problems.append(Problem(line, "", what, "Remove one of them."))
            else:
                entries[key.text] = Entry(key.text, value, line)
        return Table(tuple(entries.values()), _line(start))

    def _add(self, event: Any, what: str, remedy: str) -> None:
        self._problems.append(Problem(_line(event), "", what, remedy))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: Any) -> Scalar:
    text, line = str(event.value), _line(event)
    # A text in quotes, or a block.
    return Scalar(text, text, line) if event.style is not None else Scalar(_plain_value(text), text, line)


def _plain_value(text: str) -> Any:
    """The value of a plain scalar by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if found := _OCTAL.fullmatch(text):
        return int(found[1], 8)
    if found := _HEX.fullmatch(text):
        return int(found[1], 16)
    return float(text) if _FLOAT.fullmatch(text) else text
