"""What a client does with a key: place, locate, forget, over any candidates and any servers.

Each of the three walks the candidates (distinct nodes in probe order) and asks a callable about one node at a
time: here is where a network call goes. How a server decides is its own business. Any other answer is an
ArgumentError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from evenbins import _arguments
from evenbins.errors import ArgumentError
from evenbins.rings.errors import RingFullError

__all__ = ["Dropped", "Held", "Offered", "forget", "locate", "place"]

Offered = Literal["stored", "full"] | bool
Held = Literal["hit", "further", "miss"] | bool
Dropped = Literal["dropped", "further", "miss"]


def place(
    candidates: Iterable[str], offer: Callable[[str], Offered], *, drop: Callable[[str], object] | None = None
) -> str:
    """Offer a key to its candidates until one stores it; return the name of that node.

    Parameters
    ----------
    candidates
        Names of nodes in probe order, distinct; any iterable, read no further than needed.
    offer
        ``offer(name)`` asks a node to store the key: "stored" (or True), or "full" (or False), and then the
        node has set a mark for the key.
    drop
        ``drop(name)`` takes such a mark back; called for every node that refused, if in the end no node
        stores the key or a call fails. Without it those marks stay: harmless, but they cost probes.

    Raises
    ------
    RingFullError
        All candidates are full, or there is none.

    Notes
    -----
    The key must not be stored already: a node that was full then may have room now, and the key would be
    there twice. Ask `locate` first.

    Examples
    --------
    >>> place(["a", "b", "c"], lambda name: "full" if name == "a" else "stored")
    'b'
    """
    refused: list[str] = []
    try:
        for name in candidates:
            answer = offer(name)
            if answer is True or answer == "stored":
                return name
            if answer is not False and answer != "full":
                raise _answer_error("offer", name, '"stored" or "full"', answer)
            refused.append(name)
        raise RingFullError(
            f"none of {len(refused)} candidates has room for the key; add a node, or raise the limits"
            if refused
            else "the key has no candidate; add a node, or mark one up"
        )
    except BaseException:
        if drop is not None:
            for name in refused:
                drop(name)
        raise


def locate(candidates: Iterable[str], holds: Callable[[str], Held]) -> str | None:
    """Ask the candidates of a key for it until one has it; None if one says that none further on has.

    Parameters
    ----------
    candidates
        Names of nodes in probe order.
    holds
        ``holds(name)`` asks a node: "hit" (or True), "further" (it has a mark for the key; by the classical
        rule: it is full), "miss" (or False).

    Examples
    --------
    >>> answers = {"a": "further", "b": "hit"}
    >>> locate("ab", answers.get), locate("xa", lambda name: "miss")
    ('b', None)
    """
    for name in candidates:
        answer = holds(name)
        if answer is True or answer == "hit":
            return name
        if answer is False or answer == "miss":
            return None
        if answer != "further":
            raise _answer_error("holds", name, '"hit", "further" or "miss"', answer)
    return None


def forget(
    candidates: Iterable[str], drop: Callable[[str], Dropped], *, holds: Callable[[str], Held] | None = None
) -> str | None:
    """Take a key from the node that holds it, which is returned, and its marks from the nodes it passed.

    Parameters
    ----------
    candidates
        Names of nodes in probe order.
    drop
        ``drop(name)`` asks a node to forget the key: "dropped" (it held it: the end), "further" (it had a
        mark, which is gone now), "miss".
    holds
        As for `locate`: if given, nothing is dropped unless the key is found. Pass it unless you know that
        the key is stored: two keys may share a fingerprint, and to forget one that is not there would take
        the other's mark (as with a counting Bloom filter).

    Examples
    --------
    >>> forget("abc", {"a": "further", "b": "dropped"}.get)
    'b'
    >>> forget("abc", {"a": "further", "b": "dropped"}.get, holds=lambda name: "miss") is None
    True
    """
    if holds is not None:
        candidates = list(_candidates_to_holder(candidates, holds))
        if not candidates:
            return None
    for name in candidates:
        answer = drop(name)
        if answer == "dropped":
            return name
        if answer == "miss":
            return None
        if answer != "further":
            raise _answer_error("drop", name, '"dropped", "further" or "miss"', answer)
    return None


def _candidates_to_holder(candidates: Iterable[str], holds: Callable[[str], Held]) -> list[str]:
    """Return the candidates up to the one that holds the key; none, if none does."""
    asked: list[str] = []

    def ask(name: str) -> Held:
        asked.append(name)
        return holds(name)

    return asked if locate(candidates, ask) is not None else []


def _answer_error(argument: str, name: str, rule: str, answer: object) -> ArgumentError:
    return _arguments.error(f"{argument}({name!r})", rule, answer, "Return one of these words")
