"""Dead letters: records that a step could not process, with their origin and the error."""
