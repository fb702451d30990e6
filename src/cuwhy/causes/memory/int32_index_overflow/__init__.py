"""Rule and README of one cause: int32 index overflow."""
