"""Rule and README of one cause: cluster peer exited."""
