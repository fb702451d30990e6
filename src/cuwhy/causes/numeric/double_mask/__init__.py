"""Rule and README of one cause: double mask."""
