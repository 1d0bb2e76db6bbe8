"""The file that ``spark-submit`` runs for a worker: the command line, as ``python -m`` cannot be submitted.

``streamgroups instance run`` names it in the commands of workers.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Runs the command line without the directory of this file on the path, whose modules have short names."""
    here = str(Path(__file__).parent)
    sys.path[:] = [it for it in sys.path if it != here]
    from streamgroups_cli import main as run

    run()


if __name__ == "__main__":
    main()
