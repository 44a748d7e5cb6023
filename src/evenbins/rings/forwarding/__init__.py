"""Look-ups without a map: clients that know the ring, servers that know their own keys, and forwarding marks.

    key ──▶ candidates   a ── b ── c ── d ..       distinct nodes, in the order of the key's walk
                         │    │    └ stored        place: ask one after the other until one stores it
                         full full
                         mark mark                 the nodes that refused it keep a mark for it

A client that follows the candidates must know where to stop. The classical rule stops at the first node
that is not full: a key that overflowed past a node is lost as soon as that node has room again (a fifth of
all keys after one replacement of each, `forwarding_study`). The repair, as in a multilevel table's counters
of keys that went further: **a node keeps a mark for each live key that passed it**, and answers "further"
for these keys only. Then a full node without a mark for a key ends the search as well, so that absent keys
cost *less* than before.

Invariant: the trail of a live key is the set of its candidates before the node that holds it; a node's marks
are the live keys whose trail it is in. It is kept by the node that refuses (place), by the client that
takes a key away (forget), and, when nodes come and go, by the servers that hold keys: each compares the
trails of its own keys before and after (`evenbins.study.marked_nodes` is a model of such servers). It is not
enough to mark the new node: a slot that a key drew twice may go to the newcomer once, and then a node that
came second comes first.

Marks are counted fingerprints (`ForwardingMarks`): a false one costs a probe, never a key. Their memory is
bounded; a node that cannot store a mark answers "further" to everything until the keys it could not note
are gone.

Tried and dropped: Bloom filters of marks (the saturation that cannot lose a key needs counts, and a node has
few marks); marks that name the holder (found at once, but a move of a key must then correct all of them).

Source: chen, section 2 (the classical rule is implicit in its look-ups); the loss after deletions is ours.
"""

from evenbins.rings.forwarding.client import forget, locate, place
from evenbins.rings.forwarding.marks import ForwardingMarks

__all__ = ["ForwardingMarks", "forget", "locate", "place"]
