"""``groups timeline`` and ``sg.reports.ownership_timeline``: from the files of ``historyDir`` to a page and an image."""

from __future__ import annotations

import html
from pathlib import Path
from xml.etree import ElementTree

import pytest

import streamgroups as sg
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.membership.history_file import HistoryFile
from unit_tests.cli_runner import CommandLine

P0 = TopicPartition("flights", 0)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    directory = tmp_path / "history"
    for group_id, member in (("board", "alice"), ("board", "bob"), ("billing", "carol")):
        record = HistoryFile(str(directory), group_id=group_id, member=member)
        record(MemberEvent(Kind.ASSIGNED, {P0: 0}))
        record(MemberEvent(Kind.COMMITTED, {P0: 5}))
        record(MemberEvent(Kind.CLOSED))
    return directory


def test_a_page_and_an_image_of_one_group(cli: CommandLine, history: Path, tmp_path: Path) -> None:
    page, image = tmp_path / "owners.html", tmp_path / "owners.svg"
    done = cli("groups", "timeline", str(history), "--group", "board", "--file", str(page))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"Group board: 6 events of alice, bob. The timeline is in {page}\n"
    assert "alice owned flights-0" in page.read_text(encoding="utf-8")
    assert "carol" not in page.read_text(encoding="utf-8")
    again = ("groups", "timeline", str(history), "--group", "board", "--clock", "elapsed", "--file", str(image))
    assert cli(*again).code == 0
    assert "from 0.0 s to 0.0 s" in "".join(ElementTree.parse(image).getroot().itertext())
    assert cli(*again).code == 0, "the file is replaced"


def test_invalid_arguments_are_rejected(cli: CommandLine, history: Path, tmp_path: Path) -> None:
    page = str(tmp_path / "owners.html")
    for arguments, message in (
        (
            ("--file", page),
            "contains the history of 2 groups: billing, board. Choose one of them (group_id, or --group).",
        ),
        (("--file", page, "--group", "bard"), "contains no history of group 'bard'. It contains: billing, board."),
        (("--file", "owners.pdf"), "Use a name that ends with .html or .svg."),
        (("--file", f"{tmp_path}/none/x.svg", "--group", "board"), "cannot be written: No such file or directory."),
    ):
        rejected = cli("groups", "timeline", str(history), *arguments)
        assert rejected.code != 0
        assert message in rejected.err
    empty = cli("groups", "timeline", str(tmp_path), "--file", page)
    assert empty.code == 2
    assert "contains no history of a member" in empty.err
    (history / "alice-1.jsonl").write_text('{"time_ms": "soon"}\n')
    broken = cli("groups", "timeline", str(history), "--file", page)
    assert broken.code == 2
    assert "cannot be read" in broken.err
    assert not Path(page).exists()


def test_a_notebook_displays_the_page_in_a_frame(history: Path) -> None:
    frame = sg.reports.ownership_timeline(history, group_id="board")._repr_html_()
    element = ElementTree.fromstring(frame)
    assert element.tag == "iframe"
    assert "bob owned flights-0" in element.attrib["srcdoc"]
    assert html.escape("<!DOCTYPE html>") in frame
    with pytest.raises(sg.errors.InvalidOption, match="Argument clock is 'GMT'"):
        sg.reports.ownership_timeline(history, group_id="board", clock="GMT")
