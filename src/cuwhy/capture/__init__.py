"""Probes: run the user's program, or a tool on it, and keep what it leaves; nothing here interprets."""
