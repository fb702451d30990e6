"""Causes of the class ``memory``."""
