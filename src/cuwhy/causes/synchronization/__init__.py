"""Causes of the class ``synchronization``."""
