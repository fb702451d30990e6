"""Rule and README of one cause: dynamic shared not requested."""
