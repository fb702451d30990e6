"""Readers, one per artefact: bytes -> facts.  Pure: no subprocess, no GPU, no writing."""
