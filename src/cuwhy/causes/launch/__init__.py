"""Causes of the class ``launch``."""
