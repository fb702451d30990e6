"""Rule and README of one cause: uncoalesced access."""
