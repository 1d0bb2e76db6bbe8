"""docs/architecture.rst, "The path of a batch": a real batch calls the listed functions in the listed order."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

_PAGE = Path(__file__).parent.parent / "docs" / "architecture.rst"
#: The most files that a reader should need.
_MAX_FILES = 12


def listed() -> list[str]:
    """The steps of the page, as ``file:function``."""
    section = _PAGE.read_text(encoding="utf-8").partition("The path of a batch\n")[2].partition("\nEvent time\n")[0]
    return [f"{file}.py:{name}" for file, name in re.findall(r"^``([\w/]+)``\s+``(\w+)``", section, re.MULTILINE)]


@LONG
def test_a_batch_calls_the_functions_of_the_page_in_its_order(
    bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    steps = listed()
    assert 8 <= len(steps) == len({it.partition(":")[0] for it in steps}) <= _MAX_FILES
    topic, target, calls = new_topic(2), new_topic(2), tmp_path / "calls"
    calls.mkdir()
    producer = ordered_producer(bootstrap)

    def write(first: int) -> None:
        for n in range(first, first + 50):
            producer.produce(topic, "1", f"k{n % 5}", n % 2, timestamp=1_750_000_000_000 + n * 1_000)
        assert producer.flush(30) == 0

    config = {
        "name": "traced",
        "checkpoint": str(tmp_path / "checkpoint"),
        "options": shared_options(bootstrap, group, topic, "consumer"),
        "to": {"bootstrap_servers": bootstrap, "topic": target},
        "trigger": {"processingTime": "1 second"},
    }
    environment = {
        "STREAMGROUPS_CALLS": str(calls),
        "STREAMGROUPS_TRACED": " ".join(steps),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "traced"), *sys.path]),
    }
    write(0)
    with running("state_query", config, tmp_path / "log", environment) as query:

        def has_committed(count: int) -> bool:
            query.check()
            return sum(committed_offsets(bootstrap, group, topic).values()) == count

        wait_until(lambda: has_committed(50), "a batch")
        earlier = len(_recorded(calls))
        write(50)
        wait_until(lambda: has_committed(100), "a second batch")
    found = [step for _, step in _recorded(calls)[earlier:]]
    assert set(steps) <= set(found)
    # Tasks run in parallel, and a generator is called several times: the first call counts.
    places = {step: found.index(step) for step in steps}
    assert sorted(steps, key=places.__getitem__) == steps


def _recorded(calls: Path) -> list[tuple[float, str]]:
    """The calls of all processes, in their order."""
    lines = [line for file in calls.iterdir() for line in file.read_text().splitlines()]
    return sorted((float(time), step) for time, step in (line.split(" ") for line in lines if line.count(" ") == 1))
