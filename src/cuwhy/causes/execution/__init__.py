"""Causes of the class ``execution``."""
