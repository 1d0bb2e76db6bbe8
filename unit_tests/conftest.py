"""Hypothesis profiles of the unit tests: no time limit for an example, and reproducible examples if ``CI`` is set.
``make nightly`` sets ``STREAMGROUPS_EXAMPLES`` for more and different examples; a failure prints how to reproduce it.

``make test`` has a quarter of the usual number of examples of hypothesis, and a third of that of ``examples.sequences``. Mutants (``unit_tests.mutants``) have the usual number,
and a failing example is not minimized there, because only its existence matters.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from unit_tests.examples import TIMES, examples

_USUAL = 100
settings.register_profile(
    "local", deadline=None, max_examples=_USUAL // 4, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.register_profile(
    "mutants", settings.get_profile("ci"), max_examples=_USUAL, phases=[Phase.explicit, Phase.generate]
)
settings.register_profile("nightly", settings.get_profile("local"), max_examples=examples(_USUAL), print_blob=True)
settings.load_profile("nightly" if TIMES > 1 else "ci" if os.environ.get("CI") else "local")
