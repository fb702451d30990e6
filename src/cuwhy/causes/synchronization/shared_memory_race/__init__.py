"""Rule and README of one cause: shared memory race."""
