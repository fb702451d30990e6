"""Rule and README of one cause: shared bank conflict."""
