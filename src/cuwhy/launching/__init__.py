"""Launch configurations: would it launch, and how much of the chip would it fill; arithmetic, no GPU."""

from __future__ import annotations
