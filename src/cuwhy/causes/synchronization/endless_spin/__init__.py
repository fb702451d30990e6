"""Rule and README of one cause: endless spin."""
