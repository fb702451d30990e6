"""Profiles: Nsight Compute's reports, read into typed launches."""

from __future__ import annotations
