"""Requests to replicas that cache prefixes: each to one that holds much of its prompt and has time for it.

router      PrefixRouter: policies, loads, nodes       blocks   prompts as chains of block numbers
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.routing.blocks import blocks_of
    from evenbins.routing.router import Choice, PrefixRouter, RouterStats

__all__ = ["Choice", "PrefixRouter", "RouterStats", "blocks_of"]

_HOMES = {"blocks": "blocks_of", "router": "Choice PrefixRouter RouterStats"}

__getattr__ = lazy_names(globals(), _HOMES)
