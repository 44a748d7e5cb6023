"""A model of servers with forwarding marks, in one process.

`MarkedNode` is one server: `offer`, `holds` and `drop` in the words of `evenbins.rings.forwarding`.
`MarkedNodes` joins several and a client, with nodes that come, go, fail and recover; the messages of a real
service are calls here.

Invariant (`MarkedNodes.check`): a node's marks are the live keys whose trail it is in, one for each.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from evenbins._bulk import Key
from evenbins.rings.errors import RingFullError
from evenbins.rings.forwarding.client import Dropped, Held, Offered, forget, locate, place
from evenbins.rings.forwarding.marks import ForwardingMarks, digest_of

__all__ = ["KeyDigest", "MarkedNode", "MarkedNodes", "identify", "key_of"]


class KeyDigest(int):
    """The digest of a key, by which it is known; `key` is the key itself, as it was given first."""

    key: Key


def identify(key: Key) -> int:
    """Return the digest of a key; unless the key is a digest, a `KeyDigest`.

    >>> identify("a") == identify(bytearray(b"a")), identify("a").key, identify(7)
    (True, 'a', 7)
    """
    if isinstance(key, KeyDigest):
        return key
    digest = digest_of(key)
    try:
        number = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        found = KeyDigest(digest)
        found.key = key if isinstance(key, str) else bytes(key)
        return found
    if number == digest:
        return digest
    found = KeyDigest(digest)
    found.key = number
    return found


def key_of(digest: int) -> Key:
    """Return the key that `identify` was given."""
    return digest.key if isinstance(digest, KeyDigest) else digest


class MarkedNode:
    """What one server knows: its keys, its limit, and the marks of keys that passed it.

    Parameters
    ----------
    name
        The node's name.
    limit
        Keys it may hold: a number, or a callable without arguments, asked at each offer. A limit that falls
        evicts nobody.
    marks
        Its marks; None: the classical rule, by which a search goes on from a full node, whatever the key.

    Examples
    --------
    >>> node = MarkedNode("a", 1, marks=ForwardingMarks())
    >>> node.offer(1), node.offer(2), node.holds(1), node.holds(2), node.holds(3)
    ('stored', 'full', 'hit', 'further', 'miss')
    >>> node.drop(1), node.holds(2), node.drop(2), node.holds(2)
    ('dropped', 'further', 'further', 'miss')
    """

    def __init__(
        self, name: str, limit: int | Callable[[], int], *, marks: ForwardingMarks | None = None
    ) -> None:
        self.name = name
        self.limit = limit
        self.marks = marks
        self.held: dict[int, tuple[str, ...]] = {}  # the trail of each digest, as far as the node was told

    @property
    def full(self) -> bool:
        """Whether it takes no key more."""
        return len(self.held) >= (self.limit if isinstance(self.limit, int) else self.limit())

    def __len__(self) -> int:
        """Keys it holds."""
        return len(self.held)

    def offer(self, key: Key) -> Literal["stored", "full"]:
        """Store the key, or set a mark for it."""
        digest = identify(key)
        if digest not in self.held:
            if self.full:
                if self.marks is not None:
                    self.marks.add(digest)
                return "full"
            self.held[digest] = ()
        return "stored"

    def holds(self, key: Key, *, classical: bool = False) -> Literal["hit", "further", "miss"]:
        """Return whether the key is here ("hit"), may be further on ("further"), or is nowhere ("miss")."""
        digest = identify(key)
        if digest in self.held:
            return "hit"
        further = self.full if classical or self.marks is None else digest in self.marks
        return "further" if further else "miss"

    def drop(self, key: Key) -> Dropped:
        """Forget the key, or its mark."""
        digest = identify(key)
        if digest in self.held:
            del self.held[digest]
            return "dropped"
        answer = self.holds(digest)
        if answer == "further" and self.marks is not None:
            self.marks.remove(digest)
        return "further" if answer == "further" else "miss"


class MarkedNodes:
    """Servers and a client in one process, for tests, studies and demonstrations.

    Parameters
    ----------
    names
        The nodes.
    candidates
        ``candidates(key)`` returns the names in probe order, for example ``ring.candidates``. It is called
        with the keys that the methods are called with: digests (integers from 0 to 2**64 - 1), str, bytes or
        other int; "x" and b"x" are one key, and it gets the one that was placed. Change the ring first, then
        the group.
    limit
        Keys a node may hold: a number or ``limit(name)``.
    marks
        False: the classical rule.
    exact, fingerprint_bits, memory_bytes
        Of each node's `ForwardingMarks`.

    Notes
    -----
    Look-ups use the candidates and what each node knows. `where` is the truth, for comparison only.
    `probes` counts the nodes that were asked.

    Examples
    --------
    >>> group = MarkedNodes("abc", lambda digest: "abc", limit=1)
    >>> group.place(1), group.place(2), group.forget(1), group.locate(2)
    ('a', 'b', True, 'b')
    >>> classical = MarkedNodes("abc", lambda digest: "abc", limit=1, marks=False)
    >>> classical.place(1), classical.place(2), classical.forget(1), classical.locate(2)
    ('a', 'b', True, None)
    """

    def __init__(
        self,
        names: Iterable[str],
        candidates: Callable[[Any], Iterable[str]],
        limit: int | Callable[[str], int],
        *,
        marks: bool = True,
        exact: bool = False,
        fingerprint_bits: int = 32,
        memory_bytes: int | None = None,
    ) -> None:
        self.candidates = candidates
        self.limit = limit
        self.has_marks = marks
        self.options = (exact, fingerprint_bits, memory_bytes)
        self.nodes: dict[str, MarkedNode] = {}
        self.down: set[str] = set()
        self.where: dict[int, str] = {}
        self.probes = 0
        for name in names:
            self._new(name)

    def place(self, key: Key) -> str:
        """Place a key that is not found; RingFullError if nobody has room, and nothing has changed then."""
        return self.locate(key) or self._place(identify(key))

    def locate(self, key: Key, *, classical: bool = False) -> str | None:
        """Find a key by asking its candidates; `classical`: by that rule, though there are marks."""
        digest = identify(key)

        def holds(name: str) -> Held:
            self.probes += 1
            return self.nodes[name].holds(digest, classical=classical)

        return locate(self._reachable(digest), holds)

    def forget(self, key: Key) -> bool:
        """Take a key away, as a client does: False if it is not found."""
        digest = identify(key)

        def holds(name: str) -> Held:
            self.probes += 1
            return self.nodes[name].holds(digest)

        def drop(name: str) -> Dropped:
            self.probes += 1
            return self.nodes[name].drop(digest)

        found = forget(self._reachable(digest), drop, holds=holds)
        if found is not None and self.where[digest] == found:
            del self.where[digest]
        return found is not None

    def evict(self, key: Key) -> None:
        """Take a key away, as its node does of its own accord: it tells the nodes of the trail."""
        digest = identify(key)
        node = self.nodes[self.where.pop(digest)]
        self._unmark(digest, node.held.pop(digest))

    def join(self, name: str) -> list[Key]:
        """Add a node that the ring has by now; it gets the marks of keys that pass it. See `remark`."""
        self._new(name)
        return self.remark()

    def leave(self, name: str) -> list[Key]:
        """Remove a node that the ring has no longer; its keys are placed anew. See `remark`."""
        node = self.nodes[name]
        if name in self.down:
            self.down.discard(name)
            node.held.clear()
        del self.nodes[name]
        for digest, trail in node.held.items():
            del self.where[digest]
            self._unmark(digest, trail)
        lost = self.remark()
        return lost + [key_of(digest) for digest in node.held if not self._try_place(digest)]

    def fail(self, name: str) -> list[Key]:
        """Lose touch with a node: its keys are not found, and nobody knows which marks were theirs.

        All nodes drop their marks, and the servers that are left set those of their own keys anew.
        """
        if name in self.down:
            return []
        self.down.add(name)
        for digest in self.nodes[name].held:
            del self.where[digest]
        return self.refresh()

    def recover(self, name: str, *, keep: bool = True) -> list[Key]:
        """Be in touch again; the node has kept its keys, or lost them.

        Of those it kept it drops the ones that were placed elsewhere meanwhile. Its marks are made anew.
        """
        if name not in self.down:
            return []
        node = self.nodes[name]
        node.held = {digest: () for digest in node.held if keep and self.locate(digest) is None}
        self.down.discard(name)
        self.where.update(dict.fromkeys(node.held, name))
        return self.remark()

    def remark(self) -> list[Key]:
        """Let every server set right the marks of its own keys, after any change of the ring.

        A key whose node is no candidate any more (drained) is placed anew. Returns the keys that found no
        room, and are lost; none, if the limits are those of a ring with epsilon.
        """
        homeless: list[int] = []
        for node in self.nodes.values():
            if node.name in self.down:
                continue
            for digest, old in list(node.held.items()):
                names = list(_up_to(self._reachable(digest), node.name))
                if not names or names[-1] != node.name:
                    self.evict(digest)
                    homeless.append(digest)
                    continue
                new = tuple(names[:-1])
                self._unmark(digest, (name for name in old if name not in new))
                for name in new:
                    if name not in old and (marks := self.nodes[name].marks) is not None:
                        marks.add(digest)
                node.held[digest] = new
        return [key_of(digest) for digest in homeless if not self._try_place(digest)]

    def refresh(self) -> list[Key]:
        """Drop all marks and let every server set those of its own keys: may end a saturation."""
        for node in self.nodes.values():
            node.held = dict.fromkeys(node.held, ())
            if node.marks is not None:
                node.marks.clear()
        return self.remark()

    def check(self) -> None:
        """Assert that the marks are those of the live keys, one for each node of a trail."""
        trails: dict[str, Counter[int]] = {name: Counter() for name in self.nodes}
        for digest, name in self.where.items():
            trail = self.nodes[name].held[digest]
            assert (*trail, name) == tuple(_up_to(self._reachable(digest), name))
            for passed in trail:
                trails[passed][digest] += 1
        for name, node in self.nodes.items():
            if node.marks is not None and name not in self.down:
                assert len(node.marks) == trails[name].total()
                assert node.marks.memory_bytes is None or node.marks.nbytes <= node.marks.memory_bytes
                assert all(digest in node.marks for digest in trails[name])
                if node.marks.exact and not node.marks.saturated:
                    assert node.marks.counts() == trails[name]

    def _new(self, name: str) -> None:
        if name in self.nodes:
            raise ValueError(
                f"name must be new to the group; got {name!r}, which it has. Use recover, or leave first"
            )
        exact, bits, memory = self.options
        marks = (
            ForwardingMarks(exact=exact, fingerprint_bits=bits, memory_bytes=memory)
            if self.has_marks
            else None
        )
        limit = self.limit
        self.nodes[name] = MarkedNode(
            name, limit if isinstance(limit, int) else lambda: limit(name), marks=marks
        )

    def _reachable(self, digest: int) -> Iterator[str]:
        return (
            name for name in self.candidates(key_of(digest)) if name in self.nodes and name not in self.down
        )

    def _place(self, digest: int) -> str:
        trail: list[str] = []

        def offer(name: str) -> Offered:
            self.probes += 1
            answer = self.nodes[name].offer(digest)
            if answer == "full":
                trail.append(name)
            return answer

        name = place(self._reachable(digest), offer, drop=lambda name: self.nodes[name].drop(digest))
        self.nodes[name].held[digest] = tuple(trail)
        self.where[digest] = name
        return name

    def _try_place(self, digest: int) -> bool:
        try:
            self._place(digest)
        except RingFullError:
            return False
        return True

    def _unmark(self, digest: int, names: Iterable[str]) -> None:
        for name in names:
            if name in self.nodes and name not in self.down and (marks := self.nodes[name].marks) is not None:
                marks.remove(digest)


def _up_to(names: Iterable[str], last: str) -> Iterator[str]:
    for name in names:
        yield name
        if name == last:
            return
