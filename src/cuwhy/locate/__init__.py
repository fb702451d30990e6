"""From a program counter to a source line: line tables, names, SASS and its evaluation."""
