"""Rule and README of one cause: log sqrt domain."""
