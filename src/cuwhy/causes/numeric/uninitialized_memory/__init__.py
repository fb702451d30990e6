"""Rule and README of one cause: uninitialized memory."""
