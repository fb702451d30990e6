"""Rule and README of one cause: use after free."""
