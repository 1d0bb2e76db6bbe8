"""Rules of this project that no linter checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "streamgroups", *sorted(p for p in (ROOT / "connectors").iterdir() if (p / "__init__.py").exists()))
MODULES = sorted(m for p in PACKAGES for m in p.rglob("*.py"))
FOLDERS = (
    "streamgroups",
    "connectors",
    "unit_tests",
    "component_tests",
    "integration_tests",
    "benchmarks",
    "demo",
    "docs",
    "docker",
    ".ci",
)
TEXTS = sorted(
    path
    for pattern in (*(f"{folder}/**/*" for folder in FOLDERS), "*")
    for path in ROOT.glob(pattern)
    if path.suffix in {".py", ".cfg", ".toml", ".rst", ".md", ".txt", ".yaml", ".yml", ".json", ".sh", ""}
    and path.is_file()
    and "__pycache__" not in path.parts
    and path.name != ".git"  # in a work tree .git is a file with the path of the repository
)
MAX_LINES = 500
#: Home and work directories of a developer's machine, and private hosts of packages and images.
FOREIGN = re.compile(
    r"(?<![\w.])/(?:home|Users|root|work|workspace)/[\w.]+"
    r"|https?://(?![\w.-]*\.example\b)[\w.-]*(?:artifactory|nexus|mirror|devpi|registry)[\w.-]*"
    r"|(?:index-url|trusted-host|extra-index)"
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_opens_with_its_purpose(module: Path) -> None:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    assert docstring
    assert docstring[0].isupper() or docstring[0] in "`:" or docstring.startswith("streamgroups")


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_can_be_read_in_one_sitting(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_text_file_has_an_encoding(module: Path) -> None:
    """Not that of the locale, which can differ between the processes and hosts of a query."""
    calls = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if _is_in_encoding_of_locale(call)] == []


def _is_in_encoding_of_locale(call: ast.Call) -> bool:
    if any(it.arg in (None, "encoding") for it in call.keywords):
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id == "open" and not _is_binary(call.args[1:], call.keywords)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    # A store of the library has methods of these names with a path.
    if name in ("read_text", "write_text"):
        return len(call.args) == (name == "write_text")
    modes = [it.value for it in call.args if isinstance(it, ast.Constant)]
    return name == "open" and len(call.args) == 1 and modes in (["r"], ["w"], ["a"], ["x"])


def _is_binary(arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    modes = [*arguments[:1], *(it.value for it in keywords if it.arg == "mode")]
    return any(isinstance(it, ast.Constant) and "b" in str(it.value) for it in modes)


@pytest.mark.parametrize(
    ("call", "is_rejected"),
    [
        ("path.read_text()", True),
        ("path.read_text(errors='replace')", True),
        ("path.read_text(encoding='utf-8')", False),
        ("store.read_text('_delta_log/1.json')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open(path)", True),
        ("open(path, 'rb')", False),
        ("open(path, mode='wb')", False),
        ("path.open('w')", True),
        ("path.open('wb')", False),
        ("sink.open(group_id)", False),
    ],
)
def test_the_rule_of_encodings(call: str, is_rejected: bool) -> None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert _is_in_encoding_of_locale(node) is is_rejected


#: The beginning of a command whose arguments can have any name. Names of processors and instances need no quotes.
_COMMAND = re.compile(
    r"(?:streamgroups (?:groups|savepoint|state|checkpoint|dlq|topics) [a-z]|kafka-[a-z-]+\.sh|chmod)(?:(?!\. |[;)]).)*$"
)
_QUOTING = {"quote", "join", "names", "names_of", "topic_options"}


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_printed_command_quotes_its_arguments(module: Path) -> None:
    """A group can have the name ``a b``, or ``a; reboot``: see :mod:`streamgroups.shell_quoting`."""
    texts = [it for it in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(it, ast.JoinedStr)]
    assert [value for text in texts for value in _unquoted(text)] == []


def _unquoted(text: ast.JoinedStr) -> list[str]:
    """The values in commands of an f-string that are not quoted."""
    found, before = [], ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            before += str(part.value)
        elif isinstance(part, ast.FormattedValue):
            if _COMMAND.search(before) and not _is_quoted(part.value):
                found.append(ast.unparse(part.value))
            before += "x"
    return found


def _is_quoted(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in _QUOTING


@pytest.mark.parametrize(
    ("text", "is_rejected"),
    [
        ('f"Use: streamgroups groups reset {group} --execute."', True),
        ('f"streamgroups groups reset {names([group])} --topic {topic}"', True),
        ('f"streamgroups groups import positions.csv --group {group} --execute"', True),
        ('f"streamgroups groups import --group {shlex.quote(group)} --execute. Then restart {group}."', False),
        ('f"chmod 600 {file}"', True),
        ("f\"Use: {command('groups reset', [group])}.\"", False),
        ('f"The group {group} is written by streamgroups groups."', False),
    ],
)
def test_the_rule_of_commands(text: str, is_rejected: bool) -> None:
    parsed = ast.parse(text, mode="eval").body
    assert isinstance(parsed, ast.JoinedStr)
    assert bool(_unquoted(parsed)) == is_rejected


def test_groups_are_described_without_the_fault_of_librdkafka() -> None:
    """An assertion ends the process if a request times out before the coordinator of its group is found."""
    found = [it for it in MODULES if "describe_consumer_groups(" in it.read_text(encoding="utf-8")]
    assert [it.name for it in found if "connectors" in it.parts] == ["described_group.py"]


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_a_package_is_typed(package: Path) -> None:
    assert (package / "py.typed").is_file()


def test_nothing_names_a_machine_or_a_registry() -> None:
    assert MODULES
    assert TEXTS
    found = [
        f"{_name(path)}:{number}: {line.strip()[:120]}"
        for path in TEXTS
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other_in_a_circle() -> None:
    # The contracts ignore imports for type checkers. Those are a circle too for a reader.
    graph = grimp.build_graph(*[p.name for p in PACKAGES], cache_dir=None)
    imported = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    while leaves := [m for m, below in imported.items() if not below & imported.keys()]:
        for leaf in leaves:
            del imported[leaf]
    # The others are in a circle, or import one.
    circles = sorted(m for m in imported if m in _reached(imported, m))
    assert not circles


def _reached(imported: dict[str, set[str]], start: str) -> set[str]:
    """The modules that a module imports, directly or not."""
    found: set[str] = set()
    todo = list(imported[start])
    while todo:
        if (module := todo.pop()) not in found:
            found.add(module)
            todo += imported.get(module, ())
    return found
