"""Rule and README of one cause: sentinel index."""
