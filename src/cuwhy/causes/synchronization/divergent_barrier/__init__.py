"""Rule and README of one cause: divergent barrier."""
