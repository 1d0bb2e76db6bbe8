"""Which unit tests a file's mutants meet first, in stages: those of the module fail within seconds, then those of its neighbours.

Used by ``runner``. The last stage is the whole unit suite, so a wrong guess costs time only.
"""

from __future__ import annotations

from pathlib import Path

_UNIT = "unit_tests"
_MEMBERS = tuple(f"{_UNIT}/streamgroups_kafka/{name}.py" for name in ("test_member_state", "test_cursor_instance"))
#: What only tests of event time and windows touch, by words in a file's name.
_OF_TIME = ("time", "window", "panes", "observ", "idle", "watermark")


def stages(file: str, root: Path) -> tuple[tuple[str, ...], ...]:
    """What pytest is given, stage by stage: examples of the module and tests named after it, those of its folder, or those named
    after a word of its name; those of its neighbours; all.

    Args:
        file: the mutant's.
        root: of the project.
    """
    path = Path(file)
    own = (
        _named(path.stem, root)
        or _of_folder(path, root)
        or [p for word in path.stem.split("_") if len(word) > 4 for p in _named(word, root)]
    )
    if "event_time" in file or any(word in path.name for word in _OF_TIME):
        folders = (root / _UNIT / "streamgroups" / "query", root / _UNIT / "streamgroups_spark")
        tests = sorted(
            p for folder in folders for p in folder.glob("test_*.py") if any(word in p.name for word in _OF_TIME)
        )
        neighbours: tuple[str, ...] = (f"{_UNIT}/streamgroups/event_time", *(str(p.relative_to(root)) for p in tests))
    elif path.parts[0] == "streamgroups":
        neighbours = (f"{_UNIT}/streamgroups", *_MEMBERS)
    else:
        neighbours = (f"{_UNIT}/{path.parts[1]}",)
    there = tuple(test for test in neighbours if (root / test).exists())
    return tuple(stage for stage in ((*_examples(path), *own), there, (_UNIT,)) if stage)


def _named(word: str, root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in (root / _UNIT).rglob(f"test_*{word}*.py"))


def _of_folder(path: Path, root: Path) -> list[str]:
    folder = Path(_UNIT, *path.parts[:-1])
    return [str(folder)] if len(path.parts) > 2 and (root / folder).is_dir() else []


def _examples(path: Path) -> tuple[str, ...]:
    if path.suffix != ".py":
        return ()
    parts = path.with_suffix("").parts
    module = ".".join(parts[1:] if parts[0] == "connectors" else parts)
    return (f"{_UNIT}/test_doctests.py::test_examples[{module}]",)
