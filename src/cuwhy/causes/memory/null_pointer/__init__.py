"""Rule and README of one cause: null pointer."""
