"""Rule and README of one cause: host index out of range."""
