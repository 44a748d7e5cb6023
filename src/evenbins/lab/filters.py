"""The page Filters."""

from __future__ import annotations

from evenbins.lab.parameters import Endpoint

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
