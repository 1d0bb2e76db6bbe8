"""``python -m benchmarks``, called by ``make bench``; see ``command``."""

from __future__ import annotations

import sys

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
