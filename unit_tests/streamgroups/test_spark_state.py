"""C5: the state files that a version needs, compared with a store that applies them one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.checkpoints.spark_copy import spark_location, with_schemas_at
from streamgroups.checkpoints.spark_findings import Problem, gaps, spans, without_cleaned
from streamgroups.checkpoints.spark_state import (
    Ancestor,
    Incomplete,
    Kind,
    StateFile,
    files_of_id,
    files_of_version,
    parse_name,
)
from unit_tests.examples import examples

VERSIONS = 8


@st.composite
def _stores(draw: st.DrawFn) -> set[StateFile]:
    full, changes = draw(st.sampled_from([(Kind.SNAPSHOT, Kind.DELTA), (Kind.ZIP, Kind.CHANGELOG)]))
    numbers = st.sets(st.integers(1, VERSIONS))
    return {StateFile(n, full) for n in draw(numbers)} | {StateFile(n, changes) for n in draw(numbers)}


def _can_be_loaded(files: set[StateFile], version: int) -> bool:
    """As Spark loads it: from the newest full file, and from the empty state without one."""
    full = [it.version for it in files if it.kind.is_full and it.version <= version]
    state = max(full, default=0)
    while state < version and any(it.version == state + 1 and not it.kind.is_full for it in files):
        state += 1
    return state == version


@settings(max_examples=examples(100))
@given(_stores(), st.integers(0, VERSIONS))
def test_C5_a_version_has_all_of_its_files_or_names_a_missing_one(files: set[StateFile], version: int) -> None:
    needed = files_of_version(files, version)
    if isinstance(needed, Incomplete):
        assert not _can_be_loaded(files, version)
        assert needed.missing not in files
        return
    assert set(needed) <= files
    assert _can_be_loaded(set(needed), version)
    # None of them can be left out.
    assert all(not _can_be_loaded(set(needed) - {it}, version) for it in needed)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=VERSIONS))
def test_C5_unique_ids_choose_among_the_files_of_a_version(kept: list[tuple[bool, bool, bool]]) -> None:
    """Each version has files of two attempts, and only the ids of the first one are in the lineage."""
    ids = {n: f"id{n}" for n in range(1, len(kept) + 1)}
    files: set[StateFile] = set()
    for n, (has_zip, has_changes, has_other) in enumerate(kept, 1):
        files |= {StateFile(n, Kind.ZIP, ids[n])} if has_zip else set()
        files |= {StateFile(n, Kind.CHANGELOG, ids[n])} if has_changes else set()
        files |= {StateFile(n, kind, "other") for kind in (Kind.ZIP, Kind.CHANGELOG)} if has_other else set()
    version = len(kept)
    own = {StateFile(it.version, it.kind) for it in files if it.unique_id != "other"}

    def lineage(file: StateFile) -> list[Ancestor]:
        assert file in files
        return [Ancestor(n, ids[n]) for n in range(1, file.version)]

    needed = files_of_id(files, version, ids[version], lineage)
    if isinstance(needed, Incomplete):
        assert needed.missing not in files
        assert not _can_be_loaded(own, version)
    else:
        assert set(needed) <= files
        assert all(it.unique_id == ids[it.version] for it in needed)
        assert _can_be_loaded({StateFile(it.version, it.kind) for it in needed}, version)


@given(st.integers(0, 10**18 - 1), st.sampled_from(Kind), st.none() | st.uuids().map(str))
def test_names_of_state_files_are_parsed(version: int, kind: Kind, unique_id: str | None) -> None:
    file = StateFile(version, kind, unique_id)
    assert parse_name(str(file)) == file


@given(st.text())
def test_other_names_are_no_state_files(name: str) -> None:
    assert parse_name(f"{name}.crc") is None
    assert parse_name(f"_{name}") is None


@settings(max_examples=examples(100))
@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)))
def test_C5_the_logs_have_gaps_unless_spark_has_written_them(planned: set[int], committed: set[int]) -> None:
    """Spark deletes the lowest numbers, and at most the last batch is not committed."""
    found = gaps(sorted(planned), sorted(committed))
    is_span = all(it == set(range(min(it), max(it) + 1)) for it in (planned, committed) if it)
    last = max(planned, default=-1)
    is_written = is_span and (max(committed) in (last, last - 1) if committed else len(planned) <= 1)
    assert (found == []) == is_written


@given(st.sets(st.integers(0, 40)))
def test_spans_name_each_number(numbers: set[int]) -> None:
    found = spans(numbers)
    named = [
        n
        for part in found.split(", ")
        if part != "none"
        for n in range(int(part.split(" to ")[0]), int(part.split(" to ")[-1]) + 1)
    ]
    assert named == sorted(numbers)


def test_only_the_first_batches_can_lack_their_state() -> None:
    def missing(*batches: int) -> Problem:
        return Problem(f"state/0/0/{batches[0] + 1}.delta", "does not exist", batches)

    logged = range(6, 106)
    assert without_cleaned([missing(7), missing(8)], logged, 105) == []
    # The batch before has its state, so nothing has deleted this one.
    assert without_cleaned([missing(8)], logged, 105) == [missing(8)]
    assert without_cleaned([missing(7, 8, 9)], logged, 105) == [missing(7, 8, 9)]
    assert without_cleaned([missing(1)], range(106), 105) == [missing(1)]
    assert without_cleaned([missing(7)], [6, 7], 7) == [missing(7)]


def test_the_location_of_a_copy_is_written_as_spark_writes_it() -> None:
    def location(file: str, old: str, new: str, shown: str, *, is_same: bool = True) -> str:
        return spark_location(f"{file}/state/0/_stateSchema/default/0_a", old, new, shown, is_same_system=is_same)

    assert location("file:/data/old", "/data/old", "/data/new", "/data/new") == "file:/data/new"
    assert location("hdfs://n:8020/old", "/old", "/new", "hdfs://n:8020/new") == "hdfs://n:8020/new"
    # The old checkpoint was moved before, or the copy is in another file system.
    assert location("file:/gone", "/data/old", "/data/new", "/data/new") == "file:/data/new"
    assert location("file:/data/old", "/data/old", "b/new", "s3://b/new", is_same=False) == "s3://b/new"


def test_metadata_without_schemas_stays_as_it_is() -> None:
    text = 'v1\n{"operatorInfo": {},  "stateStoreInfo":[{"storeName":"default"}]}'
    assert with_schemas_at(text, 0, "file:/new") == text
