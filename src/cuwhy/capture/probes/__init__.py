"""Probes: each runs the user's command in one way and returns what it left; none interprets."""
