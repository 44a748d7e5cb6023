"""The nodes of a ring: they join, leave, fail, return and change their weights, and keys move.

`RingNodes` is the part of `HashRing` that changes nodes. Each change is alone with the ring; its callbacks
are called after it, in the thread that made it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins.rings.config import NodeRow, RingConfig, checked_name, checked_weight, is_unicode, some_names
from evenbins.rings.container import NodeContainer

__all__ = ["Move", "RingNodes"]

Move = tuple[int, str, str]
"""A key's digest, the node it was on, the node it is on."""

_log = logging.getLogger("evenbins.rings")


class RingNodes(_core.Ring, NodeContainer):
    """The nodes, and what happens to keys when they change."""

    __slots__ = ("_callbacks",)
    _callbacks: list[Callable[[list[Move]], object]]

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order in which they came; a new ring's are sorted."""
        return self._names()

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each node."""
        return {row.name: row.weight for row in self._node_rows()}

    @property
    def states(self) -> dict[str, str]:
        """Each node is "up", "down" or "draining"."""
        return {
            row.name: "down" if row.down else "draining" if row.draining else "up"
            for row in self._node_rows()
        }

    @property
    def version(self) -> int:
        """A number that grows with every change of nodes."""
        return self._version

    def add_node(self, name: str, weight: float = 1.0, *, move: str = "now") -> list[Move]:
        """Add a node; return the moves, all of them to it.

        Parameters
        ----------
        name
            Its name. One that the ring had before takes its old slots, if they are still free.
        weight
            From 1e-100 to 1e100; at most 2**24 times the ring's unit and 1e30 times any other weight.
        move
            "now": assigned keys that meet the new node before their own move to it, as far as it has room.
            "lazy": each moves when it is next assigned; callbacks of `on_move` hear of it.
        """
        name = checked_name(name)
        weight = checked_weight("weight", weight)
        arguments.one_of("move", move, ("now", "lazy"), "Leave it out to move keys at once")
        if self._has(name):
            raise ValueError(f"the ring has a node {name!r} already: choose another name, or use set_weight")
        return self._notify(
            self._add(name, weight, self._quanta(name, weight), self._cap(weight), move == "lazy")
        )

    def remove_node(self, name: str) -> list[Move]:
        """Remove a node for good; its keys are placed anew. For a failure use `mark_down`.

        Raises
        ------
        RingFullError, NoNodesError
            The others have no room for its keys, or none serves. Nothing is changed.
        """
        return self._notify(self._remove(self._existing(name)))

    def drain(self, name: str) -> None:
        """Let a node take nothing new; its keys stay. `mark_up` ends it."""
        self._drain(self._existing(name))

    def mark_down(self, name: str) -> list[Move]:
        """Skip a node that failed: its keys are placed elsewhere, as far as there is room, and remember it.

        It keeps its slots. New keys that would have been its own are placed elsewhere, and stay there.
        """
        return self._notify(self._mark_down(self._existing(name)))

    def mark_up(self, name: str) -> list[Move]:
        """Let a node serve again; its keys that are still assigned return, as far as it has room."""
        return self._notify(self._mark_up(self._existing(name)))

    def set_weight(self, name: str, weight: float) -> list[Move]:
        """Change a node's weight: keys move to it or away from it, never between two others."""
        name = self._existing(name)
        weight = checked_weight("weight", weight)
        return self._notify(self._set_weight(name, weight, self._quanta(name, weight), self._cap(weight)))

    def rebalance(self, max_moves: int | None = None) -> list[Move]:
        """Move keys off nodes that are above their limit, first those that overflowed to them."""
        most = 2**63
        if max_moves is not None:
            most = arguments.integer("max_moves", max_moves, 0, 2**63, "Leave it out for as many as needed")
        return self._notify(self._rebalance(most))

    def compact(self) -> list[Move]:
        """Drop empty slots, which cost draws after many nodes have left; return the moves.

        Nodes in high slots take the numbers of empty ones, so keys move: about as many as those nodes have.
        Names that left are forgotten: should they return, they get new slots.
        """
        return self._notify(self._compact())

    def on_move(self, callback: Callable[[list[Move]], object]) -> Callable[[], None]:
        """Call `callback(moves)` after every change that moved keys; return a function that ends it.

        It runs in the thread that made the change, after the change. An exception that it raises is logged
        (logger "evenbins.rings"); the change stands, and the other callbacks are called.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        self._callbacks.append(callback)

        def end() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return end

    def _notify(self, moves: list[Move]) -> list[Move]:
        if moves:
            for callback in tuple(self._callbacks):
                try:
                    callback(moves)
                except Exception:
                    _log.exception("a callback of on_move failed: %r", callback)
        return moves

    def _report_lazy_moves(self) -> None:  # the core calls it, too
        self._notify(self._take_lazy_moves())

    def _node_rows(self) -> list[NodeRow]:
        return [NodeRow(*row) for row in self._rows()]

    @property
    def _ring_config(self) -> RingConfig:
        return RingConfig(*self._config())

    def _quanta(self, name: str, weight: float) -> int:
        return self._ring_config.quanta(name, weight)

    def _cap(self, weight: float) -> int:
        return self._ring_config.cap(weight)

    def _existing(self, name: object) -> str:
        if not isinstance(name, str):
            raise TypeError(f"a node's name must be str, not {type(name).__name__}")
        if not (is_unicode(name) and self._has(name)):
            raise KeyError(f"the ring has no node {name!r}; it has {some_names(self._names())}")
        return name
