"""Causes of the class ``access-pattern``."""
