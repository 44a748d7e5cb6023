"""Secret seeds on the command line, who can read them, and what a stranger's file can do: SECURITY.md.

The attacks themselves: test_adversary.py. Damaged files of every kind: test_corruption.py. Here the way out
is tried as a user takes it, in processes of their own, with the umask most people have.
"""

from __future__ import annotations

import ast
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

import evenbins
from evenbins import (
    BlockedBloomFilter,
    CountMinSketch,
    FormatError,
    HashRing,
    HeavyHitters,
    MultilevelTable,
    digest_many,
)
from evenbins.cli.seed import SecretSeed, seed_of

LEVEL = 1e-6


def command(*arguments: object, stdin: str = "", umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """Run the command; fail if it does."""
    done = subprocess.run(
        [sys.executable, "-m", "evenbins", *map(str, arguments)], input=stdin, capture_output=True, text=True,
        timeout=240, check=False, umask=umask,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_seed_of_the_command_stops_lines_chosen_against_the_default(tmp_path: Path) -> None:
    """300 lines of one block, in a filter for 4,000; 250 others of it are asked for."""
    blocks = sum(BlockedBloomFilter(4_000, fpr=1e-3).stats().loads[0])
    lines = [str(number) for number in range(120_000)]
    places = (digest_many(lines, 0) / 2.0**64 * blocks).astype(int)
    chosen = [line for line, place in zip(lines, places, strict=True) if place == 5]
    attack, victims = chosen[:300], chosen[300:550]
    assert len(victims) == 250
    (tmp_path / "attack.txt").write_text("\n".join(attack) + "\n")
    command("seed", "-o", tmp_path / "secret.seed")
    found = {}
    for name, seed in (("open", "0"), ("secret", f"@{tmp_path / 'secret.seed'}"), ("random", "random")):
        file = tmp_path / f"{name}.evb"
        command("build", tmp_path / "attack.txt", "-o", file, "--capacity", 4_000, "--seed", seed)
        answers = command("query", file, stdin="\n".join(attack + victims) + "\n").stdout.split()
        assert set(attack) <= set(answers)  # never a false negative
        found[name] = len(set(answers) & set(victims))
    assert found["open"] > 0.95 * len(victims)
    for name in ("secret", "random"):  # 300 of 4,000 keys: a rate far below the planned one, which bounds it
        assert stats.binom.sf(found[name] - 1, len(victims), 1e-3) > LEVEL


def test_what_is_built_with_a_secret_seed_is_its_owners_alone(tmp_path: Path) -> None:
    """The file holds the seed: it must not be readable by more people than the seed's file."""
    (tmp_path / "keys").write_text("a\nb\n")
    command("seed", "-o", tmp_path / "seed")
    assert mode(tmp_path / "seed") == 0o600
    secret = ("--seed", f"@{tmp_path / 'seed'}", "--capacity", 100)

    def build(name: str, *options: object, **more: int) -> int:
        command("build", tmp_path / "keys", "-o", tmp_path / name, *options, **more)
        return mode(tmp_path / name)

    assert build("public") == 0o644
    assert build("public.exact", "--exact") == 0o644
    assert build("one", *secret) == 0o600
    assert build("exact", "--exact", "--seed", "random") == 0o600
    assert build("open umask", *secret, umask=0) == 0o600
    assert build("numbered", "--seed", "7") == 0o644  # it stood on the command line: no secret
    os.chmod(tmp_path / "one", 0o640)
    assert build("one", *secret) == 0o640  # its owner said so
    assert build("other", *secret) == 0o600
    command("merge", tmp_path / "one", tmp_path / "other", "-o", tmp_path / "merged")
    assert mode(tmp_path / "merged") == 0o600
    os.chmod(tmp_path / "other", 0o644)
    command("merge", tmp_path / "one", tmp_path / "other", "-o", tmp_path / "again")
    assert mode(tmp_path / "again") == 0o640
    assert not isinstance(seed_of("7"), SecretSeed)


def test_the_seed_is_in_the_file_and_in_the_pickle_and_nowhere_else() -> None:
    """What must be guarded; reprs, plans shown as text and errors do not give it away by accident."""
    seed = 0x0123456789ABCDEF
    for structure in (
        BlockedBloomFilter(100, fpr=1e-3, seed=seed),
        CountMinSketch(epsilon=0.1, delta=0.1, seed=seed),
        HeavyHitters(3, epsilon=0.1, delta=0.1, seed=seed),
        MultilevelTable(100, seed=seed),
        HashRing(["a", "b"], seed=seed),
    ):
        assert seed.to_bytes(8, "little") in structure.to_bytes()
        assert seed.to_bytes(8, "little") in pickle.dumps(structure)
        assert str(seed) not in repr(structure)


class _Trap:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def test_pickles_run_code_and_files_do_not(tmp_path: Path) -> None:
    """Why the warning: a pickle is a program. The package's own readers take it for a damaged file."""
    trapped = tmp_path / "trapped"
    trap = pickle.dumps(_Trap(trapped))
    path = tmp_path / "trap.evb"
    path.write_bytes(trap)
    for read in (
        lambda: evenbins.load(path),
        lambda: BlockedBloomFilter.from_bytes(trap),
        lambda: BlockedBloomFilter.open(path, verify=True),
        lambda: HashRing.from_bytes(trap),
        lambda: MultilevelTable.load(path),
    ):
        with pytest.raises(FormatError):
            read()
    assert not trapped.exists()
    pickle.loads(trap)  # what any library's pickle may do
    assert trapped.is_dir()
    honest = bytearray(pickle.dumps(BlockedBloomFilter(100, fpr=1e-3)))
    at = honest.index(BlockedBloomFilter(100, fpr=1e-3).to_bytes()[:8])
    honest[at + 100] ^= 1  # a damaged pickle of ours is refused by the same checks as a file
    with pytest.raises(FormatError):
        pickle.loads(bytes(honest))


def test_the_package_unpickles_and_evaluates_nothing() -> None:
    """No module loads pickles, marshals, or calls eval or exec: there is nothing that a file could reach."""
    root = Path(evenbins.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [each.name for each in node.names] + [getattr(node, "module", None) or ""]
                assert not {each.partition(".")[0] for each in names} & {"pickle", "marshal", "shelve"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"
