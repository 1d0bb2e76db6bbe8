"""Hypothesis profiles of the unit tests: no time limit for an example, and reproducible examples if ``CI`` is set.
``make nightly`` sets ``STREAMGROUPS_EXAMPLES`` for more and different examples; a failure prints how to reproduce it.

Under mutants (``unit_tests.mutants``) a failing example is not minimized, because only its existence matters.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from unit_tests.examples import TIMES, examples

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("nightly", settings.get_profile("local"), max_examples=examples(100), print_blob=True)
settings.load_profile("nightly" if TIMES > 1 else "ci" if os.environ.get("CI") else "local")
