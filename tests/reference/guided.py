"""A multilevel table that keeps a summary (kirsch, chapter 4), with deletions at once or lazy ones.

    key ──▶ summary ──▶ 0: absent │ j: the bucket of level j, then the others from the left, then the list

Lazy deletions (section 4.10.1): a slot whose key is deleted stays *reserved* for that key. When `due` slots
are reserved a rebuild begins; each change of the set of keys does `steps` of it:

    bucket by bucket   reserved slots become free; each key moves to its leftmost bucket further left with
                       room, and goes into the new summary
    the list           each key tries its buckets again
    then               the new summary takes the place of the old one

Invariants: the old summary knows every key, at its level or above; the new one every key before the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenbins.study.stepwise import (
    LEAST_LOADED,
    RETRY_EVERY,
    Choice,
    Full,
    Insertion,
    ReferenceMultilevel,
)
from reference.summaries import ReferenceSummary

Found = tuple[str, int] | None


class ReferenceGuided(ReferenceMultilevel):
    """A table with the summary that `make` makes, empty.

    Examples
    --------
    >>> from reference.summaries import ReferenceInterpolation
    >>> t = ReferenceGuided([5, 8, 1, 1, 1, 4, 2, 2], lambda: ReferenceInterpolation([3, 40, 30]))
    >>> t.insert(t.stored(-3), 7)
    >>> t.look(t.stored(-3))[1:], t.look(t.stored(4))[1:]          # levels read, from 0
    (([0],), ([],))
    """

    def __init__(
        self, core: Sequence[int], make: Callable[[], ReferenceSummary], seed: int = 0, *, due: int = 0
    ) -> None:
        super().__init__(core, seed)
        self.make = make
        self.summary = make()
        self.new: ReferenceSummary | None = None  # the next one, under construction
        self.due = due
        self.steps = 1 + 2 * (sum(self.buckets) + self.limit) // due if due else 0
        self.reserved: dict[int, int] = {}  # slots of deleted keys, with their digests
        self.cursor = self.listed_left = self.rebuilds = self.rebuild_moves = 0

    # --- look-ups ---------------------------------------------------------------------------------------

    def hint(self, digest: int, buckets: Sequence[int]) -> int:
        """Ask the summaries for a level, from 1; the list is levels + 1."""
        old = self.summary.level_of(digest)
        if self.new is None or old == 0:
            return old
        if old > self.levels:
            return (self.new.level_of(digest) if self.cursor == sum(self.buckets) else 0) or old
        return self.new.level_of(digest) if buckets[old - 1] < self.cursor else old

    def look(self, key: int) -> tuple[Found, list[int]]:
        """Find a stored key as the summary says; give what was read too."""
        buckets = [self.bucket(key, level) for level in range(self.levels)]
        hint = self.hint(self.digest(key), buckets)
        if hint == 0:
            return None, []
        where = self.find(key)
        if hint > self.levels and where is not None and where[0] == "entry":
            return where, []
        read = []
        for level in sorted(range(self.levels), key=lambda level: (level + 1 != hint, level)):
            read.append(level)
            if where is not None and where[0] == "slot" and where[1] // self.slots == buckets[level]:
                break
        return where, read

    # --- changes -----------------------------------------------------------------------------------------

    def insert(self, key: int, value: int, *, new: bool = False) -> None:
        """Store a key with its value; Full, and nothing has changed, when there is no room."""
        found, read = (None, []) if new else self.look(key)
        if found is not None:
            target = self.table if found[0] == "slot" else self.entries
            target[found[1]] = key, value
            return
        insertion = Insertion([self.bucket(key, level) for level in range(self.levels)], set(read), len(read))
        if not self.returns_to_its_slot(insertion, key, value):
            choice = self.choose(insertion)
            if choice.slot is None and len(self.order) == self.limit:
                raise Full
            if choice.mark is not None:
                self.marks.add(choice.mark)
            if choice.slot is None:
                self.list_add(key, value)
                self.added(self.digest(key), self.levels + 1, None)
            else:
                self.moves += choice.to is not None
                self.put(choice, key, value)
        self.insertions += 1
        self.insertion_reads += insertion.reads
        self.step()

    def returns_to_its_slot(self, insertion: Insertion, key: int, value: int) -> bool:
        """Store a key in the slot that is reserved for it, if one is."""
        for bucket in insertion.own:
            for slot in self.slots_of(bucket):
                if self.reserved.get(slot) == self.digest(key):
                    del self.reserved[slot]
                    self.table[slot] = key, value
                    return True
        return False

    def delete(self, key: int) -> bool:
        """Delete a stored key; tell whether it was there."""
        digest = self.digest(key)
        match self.find(key):
            case "entry", entry:
                self.list_remove(entry)
                self.summary.remove_digest(digest, self.levels + 1)
            case "slot", slot:
                self.table[slot] = None
                self.marks.discard(slot)
                if self.due:
                    self.reserved[slot] = digest
                else:
                    self.summary.remove_digest(digest, self.level_of(slot // self.slots) + 1)
                self.deletions += 1
                if self.scheme == LEAST_LOADED and self.order and self.deletions % RETRY_EVERY == 0:
                    self.retry_oldest()
            case _:
                return False
        self.step()
        return True

    def retry_oldest(self) -> None:
        """Try the oldest key of the list again."""
        key, _ = self.entries[self.order[0]]
        before = self.returns
        super().retry_oldest()
        if self.returns > before:
            self.summary.remove_digest(self.digest(key), self.levels + 1)

    def put(self, choice: Choice, key: int, value: int) -> None:
        """Store a key in the slot of a choice, and tell the summary, of a resident that moves too."""
        assert choice.slot is not None
        level = self.level_of(choice.slot // self.slots) + 1
        resident = self.table[choice.slot]
        super().put(choice, key, value)
        if choice.to is not None and resident is not None:
            self.summary.move_digest(self.digest(resident[0]), level, self.level_of(choice.to) + 1)
        self.added(self.digest(key), level, choice.slot)

    def added(self, digest: int, level: int, slot: int | None) -> None:
        """Tell the summary of a key; the new one too, if it will not come by there any more."""
        self.summary.add_digest(digest, level)
        bucket = sum(self.buckets) - 1 if slot is None else slot // self.slots
        if self.new is not None and bucket < self.cursor:
            self.new.add_digest(digest, level)

    # --- lazy deletions ------------------------------------------------------------------------------------

    def leftmost(self, insertion: Insertion) -> Choice:
        """Choose the leftmost bucket with room: a reserved slot is none."""
        for level in range(self.levels):
            self.look_own(insertion, level)
            if self.room(insertion.own[level]):
                return Choice(self.room(insertion.own[level])[0])
        return Choice()

    def room(self, bucket: int) -> list[int]:
        """Return the slots of a bucket that a key may take."""
        return [s for s in self.slots_of(bucket) if self.table[s] is None and s not in self.reserved]

    def step(self) -> None:
        """Do the steps of one operation."""
        if self.new is None:
            if not self.due or len(self.reserved) < self.due:
                return
            self.new, self.cursor, self.listed_left = self.make(), 0, 0
        for _ in range(self.steps):
            if self.cursor < sum(self.buckets):
                self.scan_bucket(self.cursor)
                self.cursor += 1
                if self.cursor == sum(self.buckets):
                    self.listed_left = len(self.order)
            elif self.listed_left and self.order:
                self.listed_left -= 1
                self.scan_listed()
            else:
                self.summary, self.new = self.new, None
                self.cursor = self.listed_left = 0
                self.rebuilds += 1
                return

    def scan_bucket(self, bucket: int) -> None:
        """Free the reserved slots of a bucket; move its keys to the left where there is room."""
        assert self.new is not None
        for slot in self.slots_of(bucket):
            self.reserved.pop(slot, None)
        level = self.level_of(bucket)
        for slot in self.slots_of(bucket):
            resident = self.table[slot]
            if resident is None:
                continue
            target = self.leftmost_of(resident[0], level)
            self.new.add_digest(self.digest(resident[0]), target + 1)
            if target < level:
                self.table[self.room(self.bucket(resident[0], target))[0]] = resident
                self.table[slot] = None
                self.rebuild_moves += 1

    def leftmost_of(self, key: int, below: int) -> int:
        """Return the first level, before `below`, where a key's bucket has room; `below` if none has."""
        return next((j for j in range(below) if self.room(self.bucket(key, j))), below)

    def scan_listed(self) -> None:
        """Try the oldest key of the list again."""
        assert self.new is not None
        entry = self.order[0]
        key, value = self.entries[entry]
        level = self.leftmost_of(key, self.levels)
        self.new.add_digest(self.digest(key), level + 1)
        if level == self.levels:
            self.order.append(self.order.pop(0))
            return
        self.list_remove(entry)
        self.table[self.room(self.bucket(key, level))[0]] = key, value
        self.returns += 1
