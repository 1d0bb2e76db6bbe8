"""A Python with all packages of this one except the library itself, as in a common installation error."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path


def packages_without_us(folder: Path, *, leave_out: tuple[str, ...] = ()) -> Path:
    """A folder of packages for ``sys.path``, with links to the installed packages.

    Args:
        folder: the parent folder.
        leave_out: the names of additional packages to leave out.
    """
    made = folder / "packages"
    made.mkdir(exist_ok=True)
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        own = package.name.startswith(("streamgroups", "__editable__", "_streamgroups")) or package.suffix == ".pth"
        if not own and package.name not in leave_out:
            (made / package.name).symlink_to(package)
    return made


def run_without_us(script: str, packages: Path, *paths: Path) -> str:
    """The output of a script in a Python that has only the standard library and these paths.

    The script receives the paths in ``sys.argv[1:]``. They are added to ``sys.path`` before it runs.
    """
    head = "import sys; sys.path += sys.argv[1:]\n"
    command = [sys.executable, "-I", "-S", "-c", head + script, str(packages), *map(str, paths)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=packages, timeout=120)
    return done.stdout + done.stderr
