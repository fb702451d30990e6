"""Rule and README of one cause: trap."""
