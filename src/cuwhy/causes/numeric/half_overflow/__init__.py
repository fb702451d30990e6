"""Rule and README of one cause: half overflow."""
