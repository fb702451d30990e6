"""Rule and README of one cause: illegal instruction."""
