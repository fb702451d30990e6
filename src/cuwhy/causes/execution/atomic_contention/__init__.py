"""Rule and README of one cause: atomic contention."""
