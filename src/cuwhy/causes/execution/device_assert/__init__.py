"""Rule and README of one cause: device assert."""
