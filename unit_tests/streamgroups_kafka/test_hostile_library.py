"""The native reader stays within its memory and its limits whatever librdkafka hands it. Under ``make sanitize`` every access is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamgroups_kafka import native

HERE = Path(__file__).parent
CSRC = Path(native.__file__).parent / "csrc"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not native.status().available:
        pytest.skip("no C compiler, or no native reader")
    built = tmp_path_factory.mktemp("hostile") / "librdkafka.so"
    source = HERE / "hostile_librdkafka.c"
    # Under the sanitizers their libraries are loaded into the process anyway.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", f"-I{CSRC}", "-o", built, source], check=True, env=plain)
    return built


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_librdkafka_hands_over_breaks_the_reader(library: Path, seed: int) -> None:
    ended = subprocess.run(
        [sys.executable, HERE / "hostile_library.py", str(library), "3000"],
        env={**os.environ, "SEED": str(seed), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, f"seed {seed}: {ended.stderr[-2_000:]}"
    assert int(ended.stdout) > 1_000
