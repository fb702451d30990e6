"""Rule and README of one cause: shared out of bounds."""
