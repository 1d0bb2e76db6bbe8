"""``streamgroups checkpoint verify``: finds gaps in the logs, and state files that are missing or truncated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import typer

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.spark_copy import expected_stores, metadata_batch, needs_of, stores_in, unique_ids_of
from streamgroups.checkpoints.spark_findings import Problem, by_file, gaps, spans, without_cleaned
from streamgroups.checkpoints.spark_kafka import is_own_offset
from streamgroups.checkpoints.spark_logs import (
    CommitEntry,
    OffsetEntry,
    Operator,
    parse_commit,
    parse_offsets,
    parse_operator,
)
from streamgroups.checkpoints.spark_state import CHECKSUM
from streamgroups.errors import OffsetFormat, StateDamaged
from streamgroups.tables import Column, Table
from streamgroups_admin.checkpoints.batches import query_id
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated
from streamgroups_admin.checkpoints.state_contents import FileCheck, StateContentsOf
from streamgroups_cli.checkpoint.arguments import Location
from streamgroups_cli.exits import ExitCode
from streamgroups_cli.output import Output, OutputOption, emit

_COLUMNS = (Column("file"), Column("problem"), Column("batches"))
_NOT_THERE = "does not exist"

_T = TypeVar("_T")


@dataclass(slots=True)
class _Checked:
    """The content of a checkpoint, and what is wrong with it."""

    files: CheckpointFiles
    problems: list[Problem] = field(default_factory=list)
    unverified: list[Problem] = field(default_factory=list)
    offsets: dict[int, OffsetEntry] = field(default_factory=dict)
    commits: dict[int, CommitEntry] = field(default_factory=dict)
    read: int = 0

    def parsed(self, path: str, parse: Callable[[str], _T]) -> _T | None:
        """Parses a file; ``None`` if it cannot be parsed, which becomes a problem."""
        self.read += 1
        try:
            return parse(self.files.text(path))
        except OffsetFormat as e:
            self.problems.append(Problem(path, f"cannot be read: {e.what}"))
        except ValueError as e:
            self.problems.append(Problem(path, f"is damaged: {e}"))
        return None


def verify(location: Location, output: OutputOption = Output.table) -> None:
    """Check the logs of a checkpoint, and the state files of all batches that can be restored. Exit code 1: a problem.

    Sizes and ends of files are checked, not the rows in them. A file whose compression does not mark its end, and that has no
    checksum, is listed as not verified, which is not a problem. Nothing is written.
    """
    with translated(location):
        files = CheckpointFiles(location)
        require_checkpoint(files)
        checked = _Checked(files)
        planned = _check_logs(checked)
        broken = _check_state(checked, planned)
    restorable = [it for it in checked.commits if (it == 0 or it - 1 in checked.offsets) and it in checked.offsets]
    restorable = [it for it in restorable if it not in broken]
    problems, unverified = sorted(checked.problems), sorted(checked.unverified)
    names = [column.name for column in _COLUMNS]
    shown = [*problems, *(Problem(it.path, f"is not verified: {it.text}", it.batches) for it in unverified)]
    rows = [[it.path, it.text, spans(it.batches) if it.batches else None] for it in shown]
    not_verified = f", {len(unverified)} not verified" if unverified else ""
    heading = (
        f"{checked.read} files, {len(problems)} problems{not_verified}. "
        f"Batches that can be restored: {spans(restorable)}"
    )
    emit(
        output,
        document=lambda: {
            "checkpoint": files.location,
            "files": checked.read,
            "restorable_batches": restorable,
            "problems": [dict(zip(names, (it.path, it.text, list(it.batches)), strict=True)) for it in problems],
            "unverified": [{"file": it.path, "reason": it.text, "batches": list(it.batches)} for it in unverified],
        },
        tables=lambda: [Table(_COLUMNS, rows, heading)],
    )
    if problems:
        raise typer.Exit(ExitCode.ERROR)


def _check_logs(checked: _Checked) -> list[int]:
    """Returns the batches in the offset log."""
    files = checked.files
    try:
        if query_id(files) is None:
            text = f"{_NOT_THERE}: the checkpoint is an incomplete copy, and Spark would start it with a new id"
            checked.problems.append(Problem("metadata", text))
    except ValueError as e:
        checked.problems.append(Problem("metadata", f"is damaged: {e}"))
    planned, committed = files.batch_ids("offsets"), files.batch_ids("commits")
    checked.problems += gaps(planned, committed)
    for batch_id in planned:
        offsets = checked.parsed(f"offsets/{batch_id}", _offsets)
        if offsets is not None:
            checked.offsets[batch_id] = offsets
    for batch_id in committed:
        commit = checked.parsed(f"commits/{batch_id}", parse_commit)
        if commit is not None:
            checked.commits[batch_id] = commit
    return planned


def _offsets(text: str) -> OffsetEntry:
    entry = parse_offsets(text)
    for end in entry.ends.values():
        if is_own_offset(end):
            decode(end)
    return entry


def _check_state(checked: _Checked, planned: list[int]) -> set[int]:
    """Returns the batches whose state cannot be restored."""
    sizes = {path: int(it.size) for path, it in checked.files.below("state").items()}
    found: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    unverified: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    contents = StateContentsOf(checked.files)
    checks: dict[str, FileCheck] = {}
    stores = stores_in(sizes)
    operators = _Operators(checked, sizes)
    for batch_id, commit in checked.commits.items():
        entry = checked.offsets.get(batch_id)
        if entry is None or not (batch_id == 0 or batch_id - 1 in checked.offsets):
            continue
        for store, (operator, partition) in expected_stores(operators.of(batch_id), entry, stores).items():
            ids = unique_ids_of(commit, operator, partition)
            try:
                needs = needs_of(store, stores.get(store, frozenset()), batch_id, ids, contents)
            except StateDamaged as e:
                found[_path_and_text(e)].add(batch_id)
                continue
            if needs.missing is not None:
                found[needs.missing, _NOT_THERE].add(batch_id)
            for path, size_bytes in needs.files.items():
                check = _checked_file(path, size_bytes, entry.codec, sizes, contents, checks)
                if check.problem is not None:
                    found[path, check.problem].add(batch_id)
                if check.unverified is not None:
                    unverified[path, check.unverified].add(batch_id)
    checked.read += len(checks)
    checked.unverified += by_file(unverified)
    last = max(checked.commits, default=None)
    problems = by_file(found)
    missing = [it for it in problems if it.text == _NOT_THERE]
    checked.problems += [it for it in problems if it.text != _NOT_THERE] + without_cleaned(missing, planned, last)
    return {batch_id for it in problems for batch_id in it.batches}


class _Operators:
    """The metadata of the operators, which a start of the query can change.

    Args:
        checked: the checkpoint.
        paths: the paths of all files below ``state``.
    """

    def __init__(self, checked: _Checked, paths: Collection[str]) -> None:
        self._parsed = {it: checked.parsed(it, parse_operator) for it in paths if metadata_batch(it) is not None}
        numbers = {it.split("/")[1] for it in paths}
        self._numbers = sorted(int(it) for it in numbers if it.isdecimal())

    def of(self, batch_id: int) -> dict[int, Operator | None]:
        """Those that apply to a batch. ``None`` for an operator without metadata."""
        found: dict[int, Operator | None] = dict.fromkeys(self._numbers)
        for path, operator in sorted(self._parsed.items(), key=lambda it: metadata_batch(it[0]) or 0):
            if (metadata_batch(path) or 0) <= batch_id:
                found[int(path.split("/")[1])] = operator
        return found


def _checked_file(
    path: str,
    size_bytes: int | None,
    codec: str | None,
    sizes: Mapping[str, int],
    contents: StateContentsOf,
    known: dict[str, FileCheck],
) -> FileCheck:
    """The check result of a state file. Each file is read once."""
    if path not in known:
        if path not in sizes:
            known[path] = FileCheck(_NOT_THERE)
        elif size_bytes is not None and sizes[path] != size_bytes:
            known[path] = FileCheck(f"has {sizes[path]} bytes instead of {size_bytes}")
        else:
            known[path] = contents.check(path, sizes[path], codec, has_checksum=path + CHECKSUM in sizes)
    return known[path]


def _path_and_text(error: StateDamaged) -> tuple[str, str]:
    _, path, text = error.what.split("'", 2)
    return path, text.strip().rstrip(".")
