"""Rule and README of one cause: zero times inf."""
