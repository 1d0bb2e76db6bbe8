"""Records the calls of named functions of this library in each Python process. ``test_the_path_of_a_batch`` puts it on the path
of its query.

Python runs this file in every process at its start. ``STREAMGROUPS_TRACED`` has the functions, as ``file:function`` separated by
spaces, and ``STREAMGROUPS_CALLS`` the directory of the records: a file for each process, with a line for each call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import Any

_DIRECTORY = os.environ.get("STREAMGROUPS_CALLS", "")
_TRACED = {
    name: file for file, _, name in (it.partition(":") for it in os.environ.get("STREAMGROUPS_TRACED", "").split())
}

if _DIRECTORY:
    # One unbuffered write for each line: processes are killed at the end.
    _out = open(f"{_DIRECTORY}/{os.getpid()}", "ab", buffering=0)  # noqa: SIM115

    def _record(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in _TRACED:
            for it in os.environ["STREAMGROUPS_TRACED"].split():
                file, _, name = it.partition(":")
                if name == code.co_name and code.co_filename.endswith(file):
                    _out.write(f"{time.time():.6f} {it}\n".encode())

    threading.setprofile(_record)
    sys.setprofile(_record)
