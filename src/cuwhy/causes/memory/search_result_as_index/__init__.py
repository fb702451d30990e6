"""Rule and README of one cause: search result as index."""
