"""Rule and README of one cause: misaligned access."""
