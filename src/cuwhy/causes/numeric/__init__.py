"""Causes of the class ``numeric``."""
