"""Rule and README of one cause: barrier count mismatch."""
