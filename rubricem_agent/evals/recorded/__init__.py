"""Recorded verdicts of each benchmark, turned into calls of our scorers: one module per benchmark, same names in each.

Every module ends in `UNITS`: the units of that benchmark by the name that recorded files give them.
"""
