"""Causes of the class ``unknown``."""
