"""The check of words finds the words to avoid, and ignores code."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from unit_tests import words
from unit_tests.words import check, findings, findings_in_names, names_of_python, prose, texts_of_python

DOCUMENT = """\
Watermarks
==========

The source ``tells`` a `board <board.html>`_ what it
has read, and goes
on. See :class:`MetadataStore`::

    board.tell("told")

.. code-block:: python

    # somebody
    told = 1

>>> tell()
'told'

Nobody else does.
"""

MODULE = '''\
"""Reads the board."""

TOLD = "told"  # nobody
reported_as = {"quiet": f"{tells} was told", "plain": "a flight-board ``told``"}


def asked(max_rows):
    """Returns what goes
    on, and::

        tells

    Then it says more.
    """
    raise ValueError(
        "Option 'x' is refused. "
        "Look it up."
    )
'''


def _words(text: str) -> list[tuple[int, str]]:
    found = [line.split(": ")[:2] for line in findings(text, "f")]
    return [(int(place.split(":")[1]), word.strip("'")) for place, word in found]


def test_words_of_a_document_are_found_and_its_code_is_not() -> None:
    assert _words(prose(DOCUMENT)) == [(5, "goes on"), (18, "Nobody")]


def _names(source: str) -> list[tuple[int, str]]:
    found = [line.split(": ")[:2] for line in findings_in_names(names_of_python(source), "f")]
    return [(int(place.split(":")[1]), name.removeprefix("name ").strip("'")) for place, name in found]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def ours(): ...", "ours"),
        ("async def _tell_waiting(): ...", "_tell_waiting"),
        ("class ToldAgain: ...", "ToldAgain"),
        ("def count(noted_ms, /, *, rest): ...", "noted_ms"),
        ("lambda quiet: 1", "quiet"),
        ("theirs, rest = pairs", "theirs"),
        ("rest = [said for said in texts]", "said"),
        ("self._last_asked_ms = 5", "_last_asked_ms"),
        ("_LOOKS_WITHOUT_PARTITION = 3", "_LOOKS_WITHOUT_PARTITION"),
        ("import metadata_entries as notes", "notes"),
        ("if (told := read()): ...", "told"),
        ("book = requests()", "book"),
        ("keeps: bool", "keeps"),
        ("def give(self): ...", "give"),
        ("with opened() as nobody: ...", "nobody"),
        ("for unread in ranges: ...", "unread"),
    ],
)
def test_a_word_to_avoid_is_found_where_a_name_is_defined(source: str, name: str) -> None:
    assert _names(source) == [(1, name)]


@pytest.mark.parametrize(
    "source",
    [
        "position = file.tell()",
        "call(quiet=True)",
        "from hypothesis import note",
        "def look_up(): ...",
        "def _looked_up(): ...",
        "class LookUp: ...",
        "def keep(bookings, keeps_rows): ...",
        "claims = token.claims",
        "hours = courses = 5",
        "storyteller = 1",
    ],
)
def test_names_of_others_and_terms_are_permitted(source: str) -> None:
    assert _names(source) == []


def test_the_name_of_a_module_is_read(tmp_path: Path) -> None:
    path = tmp_path / "told.py"
    path.write_text("ours = 1\n")
    assert [line.partition(": write")[0] for line in check(path, "told.py")] == [
        "told.py:1: name 'told'",
        "told.py:1: name 'ours'",
    ]


def test_comments_and_strings_of_a_module_are_read_and_identifiers_are_not() -> None:
    assert _words(texts_of_python(MODULE)) == [
        (1, "the board"),
        (3, "nobody"),
        (4, "told"),
        (8, "goes on"),
        (13, "says"),
        (16, "refused"),
        (17, "Look"),
    ]


def test_prose_keeps_lines_and_columns() -> None:
    assert [len(line) for line in prose(DOCUMENT).split("\n")] == [len(line) for line in DOCUMENT.split("\n")]
    assert [len(line) for line in texts_of_python(MODULE).split("\n")] == [len(line) for line in MODULE.split("\n")]


@pytest.mark.parametrize(
    "text",
    [
        "The tasks look up the key.",
        "See the release notes.",
        "A JWT claim is missing.",
        "The topic flight-board.",
        "boarding",
        "The group 'board' and its DELETE FROM board.",
        "Connection refused",
        "if position is None",
        "RECORDS  NOTE",
    ],
)
def test_exceptions_are_permitted(text: str) -> None:
    assert findings(text, "f") == []


@pytest.mark.parametrize(
    "text", ["The board.", "It\n    went\n    on.", "(told)", "Nobody's.", "QUIET batches", "told:"]
)
def test_case_punctuation_and_line_ends_do_not_hide_a_word(text: str) -> None:
    assert len(findings(text, "f")) == 1


def test_a_finding_names_file_and_line_and_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.rst"
    path.write_text("One line.\nThe group was made anew.\n")
    assert check(path, "docs/a.rst") == ["docs/a.rst:2: 'anew': write again; of a topic: recreated"]


def test_a_checked_path_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"docs/no-such\.rst does not exist"):
        words.checked_files(["docs/no-such.rst"])


def test_a_directory_is_checked_with_all_that_is_in_it() -> None:
    names = {path.name for path in words.checked_files(["docs", "unit_tests"])}
    assert {"glossary.rst", "test_semantics.py"} <= names
    assert "test_words.py" not in names


def test_examples() -> None:
    failed, _ = doctest.testmod(words)
    assert not failed


def test_the_names_of_arguments_are_code() -> None:
    source = '"""Reads.\n\n    Args:\n        told: the board.\n        noted, told: text.\n    """\n'
    assert [line.split(":")[1:3] for line in words.findings(words.texts_of_python(source), "a.py")] == [
        ["4", " 'the board'"]
    ]
