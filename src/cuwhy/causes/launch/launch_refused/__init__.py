"""Rule and README of one cause: launch refused."""
