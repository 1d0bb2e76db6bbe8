"""What modules consist of is set aside once, after the garbage of importing them has been collected."""

import subprocess
import sys

import pytest

_THREE_TASKS = """
import gc
from streamgroups_spark.internals.python_worker import prepare_python_worker
for _ in range(3):
    prepare_python_worker()
    print(gc.get_freeze_count() > 0, len(gc.get_objects()) < 1_000)
    kept = [[] for _ in range(2_000)]
"""


def test_from_the_second_task_on() -> None:
    done = subprocess.run([sys.executable, "-c", _THREE_TASKS], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["False False", "True True", "True False"], "once, and not in the first task"


_IMPORTS = """
import gc, sys
from types import SimpleNamespace
sys.modules["__main__"].__spec__ = {spec}
import streamgroups_spark.source
print(gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("spec", "frozen"),
    [
        ('SimpleNamespace(name="pyspark.daemon")', "True"),
        ('SimpleNamespace(name="report")', "False"),
        ("None", "False"),
    ],
)
def test_only_a_process_of_spark_freezes_its_imports_before_those_of_the_source(spec: str, frozen: str) -> None:
    command = [sys.executable, "-c", _IMPORTS.format(spec=spec)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip() == frozen
