"""All benchmarks, one after the other: ``python -m benchmarks``. Called by ``make bench``."""

from __future__ import annotations

import sys

from benchmarks import small_batches

if __name__ == "__main__":
    sys.exit(small_batches.main())
