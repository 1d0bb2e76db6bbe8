"""Rejects the start of a replica if the code of its functions has changed since this worker imported it.

Python imports a module once per process. After an upgrade of its package, a replica would start with the old code, and report no
error. Called by ``replica_run`` once per start of a replica: after a failure, ``sg.supervise`` restarts its query with the code that it
has. Source: SEMANTICS P2; Python's import system.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from streamgroups.errors import FunctionChanged, InvalidOption
from streamgroups.processors.arguments import functions_of
from streamgroups.processors.processor import Processor
from streamgroups_spark.processors.user_functions import Loader


class ImportedCode:
    """The code of functions, as this process has imported it. Safe to call from any thread.

    All imported modules of the top-level package of a function are compared. Code without a file cannot be compared, such as that of a
    namespace package, and is accepted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The hash of the file of each module, when a replica was started with it.
        self._hashes: dict[str, str] = {}

    def check(self, declared: Processor) -> None:
        """Imports the functions of a processor, and compares their code with that of earlier starts.

        Args:
            declared: the processor.

        Raises:
            FunctionChanged: if the file of a module was changed or removed after its import.
        """
        with self._lock:
            for reference in functions_of(declared.steps):
                package = reference.partition(":")[0].partition(".")[0]
                self._reject_changed(declared, reference, package)
                # The step that names the function reports the error.
                with suppress(InvalidOption):
                    Loader().function(reference)
                for name, module in _imported(package).items():
                    # The others were compared above.
                    if name not in self._hashes and (found := _hash_of(module)) is not None:
                        self._hashes[name] = found

    def _reject_changed(self, declared: Processor, reference: str, package: str) -> None:
        for name, module in _imported(package).items():
            if name in self._hashes and self._hashes[name] != _hash_of(module):
                raise FunctionChanged(
                    f"Function '{reference}' of processor '{declared.name}' cannot run with its current code: the worker (process "
                    f"{os.getpid()} on {platform.node() or 'this machine'}) imported the module '{name}' before {module.__file__} was changed.",
                    remedy="Restart the worker: SIGTERM stops it, and its other processors start on other workers. Then start this "
                    "processor again.",
                )


def _imported(package: str) -> dict[str, ModuleType]:
    # A copy: another thread can import a module meanwhile.
    return {
        name: module for name, module in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")
    }


def _hash_of(module: ModuleType) -> str | None:
    """The hash of the file of a module, or of the archive that contains it; ``None`` if it has none that can be read."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    with suppress(OSError):
        for path in (Path(file), *Path(file).parents):
            if path.is_file():
                return hashlib.sha256(path.read_bytes()).hexdigest()
    return None
