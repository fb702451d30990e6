"""Rule and README of one cause: wrong architecture."""
