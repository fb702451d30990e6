"""Rule and README of one cause: host buffer reused."""
