"""A ring as a container of its nodes: `for name in ring`, `name in ring`, `len(ring)`; and `ring[key]`.

Iteration, `in`, `len` and `bool` are about nodes. `ring[key]` is about keys, like `ring.node(key)`: a key
that equals a node's name is a key like any other.

    "a" in ring     is "a" the name of a node?             ring["a"]    which node has the key "a"?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evenbins.errors import MissingName

__all__ = ["NodeContainer"]

_ADD = "use add_node(name) to add a node, or assign(key) to place a key"
_REMOVE = "use remove_node(name) to remove a node, or release(key) to release a key"


class NodeContainer:
    """The nodes of a ring, one by one; the compiled class has `in`, `len` and `ring[key]`.

    Names that other libraries use for a ring's methods raise an AttributeError which says what to use here.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def _names(self) -> tuple[str, ...]: ...

    add = MissingName(_ADD)
    append = MissingName(_ADD)
    remove = MissingName(_REMOVE)
    discard = MissingName(_REMOVE)
    get = MissingName("use ring[key], node(key) or get_node(key)")
    get_nodes = MissingName("use nodes(key, n) for n distinct nodes, or the property names for all")
    keys = MissingName("use keys_of(name) for the keys of a node, or key_count for their number")

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the names of the nodes, as they were when it was made."""
        return iter(self._names())
