"""Turns a store into a page: tables with paired intervals, plots, and a reading made from the intervals.

One module per measure; each returns sections of markdown and says in words only what its intervals say.
"""
