"""``python -m unit_tests.mutants``, called by ``make mutants``; see ``runner``."""

from __future__ import annotations

import sys

from unit_tests.mutants.runner import main

if __name__ == "__main__":
    sys.exit(main())
