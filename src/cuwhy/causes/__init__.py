"""The catalogue of causes; each folder ``<class>/<cause>`` holds one rule and its README."""
