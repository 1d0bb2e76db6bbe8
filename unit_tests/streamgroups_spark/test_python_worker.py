"""What modules consist of is set aside once, after the garbage of importing them has been collected."""

import subprocess
import sys

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
