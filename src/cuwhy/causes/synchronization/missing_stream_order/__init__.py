"""Rule and README of one cause: missing stream order."""
