"""The hierarchy of errors: errors are pickled between processes, and the CLI and users distinguish them by ``code``."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from streamgroups import errors
from streamgroups.errors import StreamGroupsError


def _tree(root: type[StreamGroupsError]) -> list[type[StreamGroupsError]]:
    return [root, *(below for child in root.__subclasses__() for below in _tree(child))]


ERRORS = [error for error in _tree(StreamGroupsError) if error.__module__ == errors.__name__]
DOCUMENTED = {
    match[1]: bool(match[2])
    for match in re.finditer(r"[├└]── (\w+)\s[^\n]*?(\(retriable\))?$", errors.__doc__ or "", re.MULTILINE)
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("remedy", ["", "Do this."])
def test_every_error_pickles(error: type[StreamGroupsError], remedy: str) -> None:
    before = error("Topic 'flights' is gone.", remedy=remedy)

    after = pickle.loads(pickle.dumps(before))

    assert type(after) is error
    assert (after.what, after.remedy, str(after)) == (before.what, before.remedy, str(before))
    assert (after.code, after.retriable) == (error.code, error.retriable)


def test_codes_are_unique_and_machine_readable() -> None:
    codes = [error.code for error in ERRORS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_the_docstring_shows_the_whole_tree() -> None:
    assert set(DOCUMENTED) == {error.__name__ for error in ERRORS} - {"StreamGroupsError"}


def test_the_docstring_names_the_retriable_ones() -> None:
    assert {name for name, retriable in DOCUMENTED.items() if retriable} == {
        error.__name__ for error in ERRORS if error.retriable
    }


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_explains_its_meaning(error: type[StreamGroupsError]) -> None:
    assert inspect.getdoc(error)


def test_the_text_is_what_happened_and_what_to_do() -> None:
    assert str(StreamGroupsError("It broke.", remedy="Mend it.")) == "It broke. Mend it."
    assert str(StreamGroupsError("It broke.")) == "It broke."


def test_no_remedy_and_no_document_installs_a_package_that_is_not_published() -> None:
    """No package ``streamgroups`` is on PyPI: such a command could install that of another project."""
    root = Path(__file__).parents[1]
    files = [it for name in ("streamgroups", "connectors", "docs") for it in (root / name).rglob("*.*")]
    texts = {it: it.read_text(encoding="utf-8") for it in files if it.suffix in (".py", ".rst")}
    # A wheel is a file.
    named = re.compile(r"pip install (?:-\S+ )*['\"]?streamgroups(?![\w.-]*\.whl|-0)")
    assert [str(it) for it, text in texts.items() if named.search(text)] == []
