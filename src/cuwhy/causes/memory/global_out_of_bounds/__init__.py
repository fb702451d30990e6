"""Rule and README of one cause: global out of bounds."""
