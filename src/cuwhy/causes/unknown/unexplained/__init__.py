"""Rule and README of one cause: unexplained."""
