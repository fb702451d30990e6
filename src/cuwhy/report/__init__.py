"""Diagnosis -> text, JSON: no logic, only words and layout."""
