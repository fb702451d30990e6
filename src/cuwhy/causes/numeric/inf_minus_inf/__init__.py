"""Rule and README of one cause: inf minus inf."""
