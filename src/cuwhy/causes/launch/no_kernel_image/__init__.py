"""Rule and README of one cause: no kernel image."""
