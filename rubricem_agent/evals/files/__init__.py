"""Readers of the official file formats: one module per benchmark, each with a `load`.

A file that differs from the official one in hash or row count is refused unless `UNCHECKED` is passed.
"""
