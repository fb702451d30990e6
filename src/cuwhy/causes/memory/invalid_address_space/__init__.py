"""Rule and README of one cause: invalid address space."""
