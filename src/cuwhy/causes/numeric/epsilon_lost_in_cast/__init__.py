"""Rule and README of one cause: epsilon lost in cast."""
