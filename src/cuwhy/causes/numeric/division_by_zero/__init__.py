"""Rule and README of one cause: division by zero."""
