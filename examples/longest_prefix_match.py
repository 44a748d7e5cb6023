"""IPv4 longest-prefix match on a multilevel table with a summary: section 2.2.2 of Kirsch's thesis.

    python examples/longest_prefix_match.py [--routes 100000] [--addresses 5000]

A router has routes, prefix ──▶ next hop, and sends a packet along the longest prefix that its address begins
with. The prefixes of all lengths lie in one table, in slow memory; a summary in fast memory says of a probe
"absent", which costs nothing, or names the one bucket to read.

    probe (prefix, length) ──▶ summary ──▶ absent: no read │ level j: one read of the table

Two orders of the probes:

- `Routes`: from the longest length to the shortest. Many probes, nearly all of them absent: about one read.
  Routes may come and go.
- `BinaryRoutes`: a binary search on the lengths (Waldvogel et al., as the thesis tells it). A route leaves a
  *marker* at each length where its search turns to the longer side; a marker knows the best route so far,
  so that a search that was led astray need not turn back. Few probes, most of them present: a read each.
  Built once.

Invariants
- `lookup` and `lookup_many` agree with each other, and with a search through all routes
  (tests/unit/test_examples.py compares them with `ipaddress`).
- The key of a prefix is `length << 32 | bits`, with zeros behind the prefix: no two prefixes share one.

Tried and dropped: a table for each length. One table takes the same reads, and has one plan instead of 33.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenbins import MultilevelTable
from evenbins.tables.multilevel import plan_multilevel

Ints = NDArray[np.int64]
NONE = -1  # no route
_MASKS = np.array([(0xFFFFFFFF << (32 - length)) & 0xFFFFFFFF for length in range(33)], dtype=np.int64)


def key_of(bits: Any, length: Any) -> Any:
    """Return the table's key of the first `length` bits: numbers or arrays of them."""
    return (length << 32) | (bits & _MASKS[length])


def new_table(capacity: int, *, summary: bool = True, changes: bool = False) -> MultilevelTable:
    """Make a table of the thesis: filled from the left, with multiple Bloom filters as its summary.

    Buckets of eight slots, a quarter of them empty, leave little for the later levels: that keeps the
    summary small, and the overflow list empty. With `changes` keys can be deleted (lazily, section 4.10.1).
    """
    shape: dict[str, Any] = {"scheme": "standard", "levels": 3, "slots": 8, "space": 1.25}
    if summary:
        shape |= {"summary": "multiple-bloom", "false_positives": 1e-3, "deletions": changes and "lazy"}
    return MultilevelTable.from_plan(plan_multilevel(capacity, **shape))


class Routes:
    """Routes that come and go; a look-up probes from the longest length to the shortest.

    Parameters
    ----------
    capacity
        Routes at most.
    changes
        False for a table that is filled once: a tenth less memory.

    Examples
    --------
    >>> from ipaddress import IPv4Address
    >>> routes = Routes(100)
    >>> routes.add(IPv4Network("10.0.0.0/8"), 1)
    >>> routes.add(IPv4Network("10.1.0.0/16"), 2)
    >>> [routes.lookup(int(IPv4Address(text))) for text in ("10.1.2.3", "10.2.0.0", "11.0.0.0")]
    [2, 1, -1]
    >>> routes.remove(IPv4Network("10.1.0.0/16"))
    >>> routes.lookup(int(IPv4Address("10.1.2.3")))
    1
    """

    def __init__(self, capacity: int, *, changes: bool = True) -> None:
        self.table = new_table(capacity, changes=changes)
        self._of_length = np.zeros(33, dtype=np.int64)  # routes of each length

    @classmethod
    def from_arrays(cls, bits: Ints, lengths: Ints, hops: Ints) -> Routes:
        """Build from prefixes that are all different, in bulk; to be asked, not changed."""
        routes = cls(len(bits), changes=False)
        routes.table.insert_many(key_of(bits, lengths), hops)
        routes._of_length += np.bincount(lengths, minlength=33)
        return routes

    def add(self, network: IPv4Network, hop: int) -> None:
        """Add a route, or change its next hop (0 or more)."""
        key = key_of(int(network.network_address), network.prefixlen)
        self._of_length[network.prefixlen] += key not in self.table
        self.table[key] = hop

    def remove(self, network: IPv4Network) -> None:
        """Remove a route; KeyError if there is none."""
        del self.table[key_of(int(network.network_address), network.prefixlen)]
        self._of_length[network.prefixlen] -= 1

    @property
    def lengths(self) -> list[int]:
        """The lengths that occur, the longest first."""
        return [int(length) for length in np.flatnonzero(self._of_length)[::-1]]

    def walk(self, address: int) -> tuple[int, list[int]]:
        """Return the next hop, and the keys that were probed."""
        probed = []
        for length in self.lengths:
            probed.append(int(key_of(address, length)))
            hop = self.table.get(probed[-1])
            if hop is not None:
                return int(hop), probed
        return NONE, probed

    def lookup(self, address: int) -> int:
        """Return the next hop of an address; -1 without a route."""
        return self.walk(address)[0]

    def lookup_many(self, addresses: Ints, *, up_to: int = 32) -> Ints:
        """Return the next hops by routes of at most `up_to` bits, length by length."""
        hops = np.full(len(addresses), NONE, dtype=np.int64)
        left = np.arange(len(addresses))
        for length in self.lengths:
            if length <= up_to:
                found = self.table.get_many(key_of(addresses[left], length), default=NONE)
                hops[left] = found
                left = left[found == NONE]
        return hops


class BinaryRoutes:
    """Routes that stay as they are; a look-up is a binary search on the lengths.

    Examples
    --------
    >>> from ipaddress import IPv4Address
    >>> routes = BinaryRoutes(*arrays_of({IPv4Network("10.0.0.0/8"): 1, IPv4Network("10.1.0.0/16"): 2}))
    >>> [routes.lookup(int(IPv4Address(text))) for text in ("10.1.2.3", "10.2.0.0", "11.0.0.0")]
    [2, 1, -1]
    """

    def __init__(self, bits: Ints, lengths: Ints, hops: Ints) -> None:
        self.lengths = np.unique(lengths)
        plain = Routes.from_arrays(bits, lengths, hops)
        keys, values = [], []
        for at, length in enumerate(self.lengths):
            entries = [bits[lengths == length]]
            entries += [bits[lengths == each] for each in self.lengths[at + 1 :] if self._passes(each, at)]
            here = np.unique(np.concatenate(entries) & _MASKS[length])
            keys.append(key_of(here, length))
            values.append(plain.lookup_many(here, up_to=int(length)))  # the best route so far
        self.table = new_table(sum(map(len, keys)))
        self.table.insert_many(np.concatenate(keys), np.concatenate(values))

    def _passes(self, length: int, at: int) -> bool:
        """Return whether the search for a length turns to the longer side at this place."""
        low, high = 0, len(self.lengths) - 1
        while True:
            middle = (low + high) // 2
            if self.lengths[middle] == length:
                return False
            if self.lengths[middle] < length:
                if middle == at:
                    return True
                low = middle + 1
            else:
                high = middle - 1

    def walk(self, address: int) -> tuple[int, list[int]]:
        """Return the next hop, and the keys that were probed."""
        hop, probed = NONE, []
        low, high = 0, len(self.lengths) - 1
        while low <= high:
            middle = (low + high) // 2
            probed.append(int(key_of(address, self.lengths[middle])))
            found = self.table.get(probed[-1])
            if found is None:
                high = middle - 1
            else:
                hop, low = int(found), middle + 1
        return hop, probed

    def lookup(self, address: int) -> int:
        """Return the next hop of an address; -1 without a route."""
        return self.walk(address)[0]

    def lookup_many(self, addresses: Ints) -> Ints:
        """Return the next hops: all searches go on in step."""
        absent = -2  # a marker may know of no route, which is NONE
        hops = np.full(len(addresses), NONE, dtype=np.int64)
        low = np.zeros(len(addresses), dtype=np.int64)
        high = np.full(len(addresses), len(self.lengths) - 1)
        while (left := np.flatnonzero(low <= high)).size:
            middle = (low[left] + high[left]) // 2
            found = self.table.get_many(key_of(addresses[left], self.lengths[middle]), default=absent)
            there = found != absent
            hops[left[there]] = found[there]
            low[left[there]] = middle[there] + 1
            high[left[~there]] = middle[~there] - 1
        return hops


# --- what it costs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Means of a look-up: probes, those that found something, table reads as planned and as counted."""

    probes: float
    present: float
    planned: float
    counted: float


def cost(routes: Routes | BinaryRoutes, table: MultilevelTable, addresses: Iterable[int]) -> Cost:
    """Count the probes of look-ups, and the reads of this table that answer them."""
    probed = [routes.walk(int(address))[1] for address in addresses]
    asked = [table.probe(key) for keys in probed for key in keys]
    present = sum(level > 0 for level, _, _ in asked) / len(probed)
    probes = len(asked) / len(probed)
    plan = table.plan
    assert plan.reads is not None
    assert plan.miss_reads is not None
    planned = present * plan.reads + (probes - present) * plan.miss_reads
    return Cost(probes, present, planned, sum(reads for _, reads, _ in asked) / len(probed))


# --- made-up routes --------------------------------------------------------------------------------------

# Routes of each length, in per cent: mostly /24, some of all, as in the tables of the Internet's backbone.
_SHARES = {
    8: 0.1, 9: 0.1, 10: 0.1, 11: 0.1, 12: 0.1, 13: 0.2, 14: 0.3, 15: 0.4, 16: 1.6, 17: 1.0, 18: 1.5, 19: 2.5,
    20: 4.5, 21: 5, 22: 11, 23: 10, 24: 60, 25: 0.3, 26: 0.3, 27: 0.2, 28: 0.2, 29: 0.2, 30: 0.2, 32: 0.1,
}  # fmt: skip


def make_routes(count: int, *, seed: int) -> tuple[Ints, Ints, Ints]:
    """Return prefixes, all different and many inside others, their lengths, and next hops."""
    rng = np.random.default_rng(seed)
    shares = np.array(list(_SHARES.values()))
    lengths = rng.choice(list(_SHARES), size=2 * count, p=shares / shares.sum())
    networks = rng.integers(2**12, size=600)  # so that long prefixes fall into short ones
    bits = rng.choice(networks, size=2 * count) << 20 | rng.integers(2**20, size=2 * count)
    _, first = np.unique(key_of(bits, lengths), return_index=True)
    chosen = rng.permutation(first)[:count]
    bits, lengths = bits[chosen], lengths[chosen]
    return bits & _MASKS[lengths], lengths, np.arange(len(chosen))


def make_addresses(count: int, bits: Ints, lengths: Ints, *, seed: int) -> Ints:
    """Return addresses: half of them inside a route, half of them anywhere."""
    rng = np.random.default_rng(seed)
    at = rng.integers(len(bits), size=count)
    inside = bits[at] | (rng.integers(2**32, size=count) & ~_MASKS[lengths[at]] & 0xFFFFFFFF)
    return np.where(rng.random(count) < 0.5, inside, rng.integers(2**32, size=count))


def arrays_of(routes: dict[IPv4Network, int]) -> tuple[Ints, Ints, Ints]:
    """Return the arrays that the classes take."""
    bits = [int(network.network_address) for network in routes]
    lengths = [network.prefixlen for network in routes]
    return np.array(bits), np.array(lengths), np.array(list(routes.values()))


def main() -> None:
    """Print the costs of both searches, with the summary and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--routes", type=int, default=100_000)
    parser.add_argument("--addresses", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    bits, lengths, hops = make_routes(options.routes, seed=options.seed)
    addresses = make_addresses(options.addresses, bits, lengths, seed=options.seed + 1)
    print(f"{len(bits):_} routes of {len(np.unique(lengths))} lengths, {len(addresses):_} addresses\n")
    print("search  summary            keys  bits/key   probes  present   reads: plan  counted")
    searches: dict[str, Routes | BinaryRoutes] = {
        "linear": Routes.from_arrays(bits, lengths, hops),
        "binary": BinaryRoutes(bits, lengths, hops),
    }
    for name, routes in searches.items():
        bare = new_table(len(routes.table), summary=False)
        bare.insert_many(np.fromiter(routes.table.keys(), np.int64), 0)
        for summary, table in (("multiple-bloom", routes.table), ("none", bare)):
            plan, of = table.plan, cost(routes, table, addresses)
            fast = plan.summary.bits_per_key if plan.summary else 0
            print(
                f"{name:7} {summary:14} {len(table):8_} {fast:9.1f} {of.probes:8.2f} {of.present:8.2f} "
                f"{of.planned:13.3f} {of.counted:8.3f}"
            )


if __name__ == "__main__":
    main()
