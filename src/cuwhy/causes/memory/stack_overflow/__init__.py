"""Rule and README of one cause: stack overflow."""
