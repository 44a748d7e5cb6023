"""Soaks against exact oracles: a harness (`harness`), and what it runs in memory, on disk, over the network.

`tools/soak_all.py` runs them; each module says what its oracle is.
"""
