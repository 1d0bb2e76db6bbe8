"""Small faults that are put into the code, one at a time, to measure whether the unit tests detect them; ``make mutants``."""
