"""Rule and README of one cause: buffer recycled across streams."""
