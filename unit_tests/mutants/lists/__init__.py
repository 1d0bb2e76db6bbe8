"""All mutants, by area."""

from __future__ import annotations

from unit_tests.mutants.lists import batches, groups, instances, records, sinks, time
from unit_tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *groups.MUTANTS,
    *batches.MUTANTS,
    *sinks.MUTANTS,
    *time.MUTANTS,
    *records.MUTANTS,
    *instances.MUTANTS,
)
