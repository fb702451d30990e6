"""Which step next, why, and at what cost: pure functions of what is known, so that a case replays them."""

from __future__ import annotations

from cuwhy.planning.choose import next_step, pursue
from cuwhy.planning.costs import Cost, cost_of
from cuwhy.planning.steps import CHECKERS, Options, Step, Stop, Tools

__all__ = ["CHECKERS", "Cost", "Options", "Step", "Stop", "Tools", "cost_of", "next_step", "pursue"]
