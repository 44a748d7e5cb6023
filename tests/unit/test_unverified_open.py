"""`open` without `verify` believes the payload: answers may then be wrong, but nothing crashes or hangs.

The smallest golden file of each class is damaged behind its header in six ways, mapped without a look at
the payload, and put to every use; a copy of it is changed in every way too. In processes of their own, forks
of one that has imported all: a crash, or an error that is no ordinary one, fails the test; a use that takes
a hundred seconds ends the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_corruption import smallest_of_each_class

USES = """
import faulthandler, json, os, random, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from test_corruption import class_of
from evenbins import FormatError

faulthandler.enable()
rounds, folder = int(sys.argv[2]), Path(sys.argv[3])
KEYS = [*range(-50, 1000, 7)]
WORDS = (0, 1, 7, 2**16, 2**31, 2**32 - 1, 2**63, 2**64 - 1)

def damaged(how):
    new, size = bytearray(data), len(data) - start
    if how == 0:
        new[start + rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif how == 1:
        for _ in range(rng.randrange(1, 40)):
            new[start + rng.randrange(size)] = rng.choice([0, 255, rng.randrange(256)])
    elif how == 2:
        at = start + rng.randrange(0, size, 8)
        new[at : at + 8] = rng.choice(WORDS).to_bytes(8, "little")
    elif how == 3:
        new[start:] = rng.randbytes(size)
    elif how == 4:
        new[start:] = bytes([rng.choice([0, 255, 0x55])]) * size
    else:  # words of state lie at the end
        for _ in range(rng.randrange(1, 6)):
            at = len(new) - 8 * rng.randrange(1, min(33, size // 8 + 1))
            new[at : at + 8] = rng.choice(WORDS).to_bytes(8, "little")
    return bytes(new[: len(data)])

READS = {
    "contains_many": (KEYS,), "count_many": (KEYS,), "get_many": (KEYS, 0), "level_many": (KEYS,),
    "node_many": (KEYS,), "locate_many": (KEYS,), "bucket_many": (KEYS,), "stats": (), "approx_items": (),
    "items": (), "__repr__": (), "__len__": (), "to_bytes": (), "_check": (), "probe": (5,), "loads": (),
}
CHANGES = [
    ("add_many", (KEYS,)), ("add_many", (KEYS, 1)), ("remove_many", (KEYS,)), ("remove_many", (KEYS, 1)),
    ("insert_many", (KEYS, 1)), ("delete_many", (KEYS,)), ("insert_many", (range(3000), 1)),
    ("grown", (1000,)),
    ("__setitem__", (3, 1)), ("__delitem__", (3,)), ("assign_many", (KEYS,)), ("release_many", (KEYS,)),
    ("add_node", ("new",)), ("rebalance", (100,)), ("compact", ()), ("rebuild", ()), ("move", (3, 1, 2)),
]

def attempt(call):
    signal.alarm(100)  # ends a call that hangs
    try:
        found = call()
        return list(found) if hasattr(found, "__iter__") else found
    except (ValueError, LookupError, TypeError, RuntimeError, ArithmeticError, AssertionError):
        return None
    finally:
        signal.alarm(0)

def use(made):
    for name, arguments in READS.items():
        if hasattr(made, name) and not isinstance(getattr(type(made), name), property):
            attempt(lambda: getattr(made, name)(*arguments))
    attempt(lambda: [key in made for key in KEYS[:20]])

def mapped():
    found = 0
    for number in range(rounds):
        place.write_bytes(damaged(number % 6))
        try:
            made = cls.open(place)
        except FormatError:  # what costs one look is checked even so
            continue
        found += 1
        use(made)
        copy = []
        attempt(lambda: copy.append(made.copy()))
        for twin in copy:
            for name, arguments in CHANGES:
                if hasattr(twin, name):
                    attempt(lambda: getattr(twin, name)(*arguments))
            use(twin)
            attempt(lambda: twin.clear())
            use(twin)
    return found

ended = {}
for each in sys.argv[4:]:
    path = Path(each)
    place, said = folder / path.stem, folder / f"{path.stem}.said"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        cls, data, rng = class_of(path), path.read_bytes(), random.Random(5)
        start = int.from_bytes(data[40:48], "little")
        place.with_suffix(".mapped").write_text(str(mapped()))
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended[path.stem] = status, said.read_text(errors="replace")
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[int, str]]]:
    """For the file of each class the status and the errors of its process, and the folder of its results."""
    folder = tmp_path_factory.mktemp("damaged")
    paths = map(str, smallest_of_each_class())
    done = subprocess.run(
        [sys.executable, "-c", USES, str(Path(__file__).parent), "10", str(folder), *paths],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return folder, found


@pytest.mark.parametrize("path", smallest_of_each_class(), ids=lambda path: path.stem)
def test_a_damaged_payload_that_nobody_looked_at(
    path: Path, ended: tuple[Path, dict[str, tuple[int, str]]]
) -> None:
    folder, processes = ended
    status, said = processes[path.stem]
    assert status == 0, said
    mapped = int((folder / f"{path.stem}.mapped").read_text())
    assert mapped >= (0 if path.stem.startswith("ring") else 1)  # a ring's image is checked whole
