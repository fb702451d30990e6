"""Register pressure: live registers by instruction and line, spills, and what fewer would give; no GPU."""

from __future__ import annotations
