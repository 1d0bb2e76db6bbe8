"""The page "how facts travel between the processes of Spark" names the channels and the messages of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import grimp
import pytest

from streamgroups_spark import bridge
from streamgroups_spark.messages.unions import Request

_ROOT = Path(bridge.__file__).parent.parent
_PAGE = bridge.__doc__ or ""
_FIELDS = ["Modules", "From, to", "When", "Content", "Kill", "Security"]
#: Modules that describe the other end of several channels.
_NAMES = {it.stem for it in Path(bridge.__file__).parent.glob("*.py")} - {"__init__"}


def _channels() -> dict[str, dict[str, str]]:
    """The fields of each channel."""
    section = _PAGE.split("Channels\n--------")[1].split("Messages\n--------")[0]
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in section.splitlines():
        if (field := re.fullmatch(r"    :([A-Z][\w, ]+): (.*)", line)) is not None:
            found[name][field[1]] = field[2]
        elif re.fullmatch(r"[A-Z][\w' -]+", line):
            name = line
            found[name] = {}
    return found


def _messages() -> dict[str, tuple[set[str], set[str]]]:
    rows = re.findall(r"^([A-Z]\w+) {2,}([\w., ]+?) {2,}([\w.]+)$", _PAGE, re.MULTILINE)
    return {name: (set(sent.split(", ")), {answered}) for name, sent, answered in rows}


def _modules_that_use(name: str) -> set[str]:
    """The modules that create a message or compare with its class."""
    return {
        module
        for module, tree in _trees().items()
        if not module.startswith("messages.")
        and any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
    }


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("streamgroups_spark", cache_dir=None, exclude_type_checking_imports=True)


@cache
def _trees() -> dict[str, ast.Module]:
    """The modules without the annotations of arguments and variables."""
    trees = {}
    for path in _ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.arg | ast.AnnAssign):
                node.annotation = ast.Constant(None)
        trees[".".join(path.relative_to(_ROOT).with_suffix("").parts)] = tree
    return trees


def test_each_channel_has_all_fields() -> None:
    channels = _channels()
    assert len(channels) == 11
    assert {name: list(fields) for name, fields in channels.items()} == dict.fromkeys(channels, _FIELDS)


def test_each_module_belongs_to_a_channel() -> None:
    named = {name for it in _channels().values() for name in re.findall(r"``(\w+)``", it["Modules"])}
    assert named == _NAMES


@pytest.mark.parametrize("channel", [it for it in _channels() if it != "Driver RPC"])
def test_the_ends_of_a_channel_use_its_modules(channel: str) -> None:
    graph = _graph()
    fields = _channels()[channel]
    modules = {f"streamgroups_spark.bridge.{name}" for name in re.findall(r"``(\w+)``", fields["Modules"])}
    for end in re.findall(r"``([\w.]+)``", fields["From, to"]):
        name = f"streamgroups_spark.{end}" if "." in end else f"streamgroups_spark.bridge.{end}"
        assert modules & graph.find_modules_directly_imported_by(name), end


def test_each_message_has_the_ends_of_the_code() -> None:
    assert _messages().keys() == {it.__name__ for it in get_args(Request)}
    for name, (sent, answered) in _messages().items():
        assert _modules_that_use(name) == sent | answered, name


def test_only_the_bridge_reads_logs_and_sockets() -> None:
    forbidden = re.compile(r"AF_UNIX|/offsets|/commits|def __getstate__|\.accumulator\(")
    outside = {
        str(path.relative_to(_ROOT)): found
        for path in _ROOT.rglob("*.py")
        if path.parent.name != "bridge" and (found := sorted(set(forbidden.findall(path.read_text(encoding="utf-8")))))
    }
    # These exclude the member of the driver from the settings of tasks.
    assert outside.keys() <= {"source/readers.py", "source/reader_before_4_2.py"}, outside
    assert all(found == ["def __getstate__"] for found in outside.values()), outside
