"""Rule and README of one cause: local out of bounds."""
