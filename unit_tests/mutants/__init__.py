"""Small faults that are put into the code, one at a time, to learn whether the unit tests notice them; ``make mutants``."""
