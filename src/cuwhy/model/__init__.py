"""The vocabulary of cuwhy: frozen dataclasses, standard library only.

Whatever a reader learns is a *fact*; a fact that stands somewhere in code has a
*place*; a cause that a case supports is a *finding*; findings, ranked, are a
*diagnosis*.  Nothing in this package reads a file or starts a process.
"""
