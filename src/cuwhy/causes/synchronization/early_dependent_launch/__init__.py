"""Rule and README of one cause: early dependent launch."""
