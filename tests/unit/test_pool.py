"""The pool of worker threads: all calls share it, and it survives forks, errors, signals and the exit.

Most tests run in a process of their own, whose pool is empty at first. Workers have the name "evenbins", so
/proc says how many there are.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    Deduplicator,
    GrowingFilter,
    HyperLogLog,
    ShardedFilter,
)

SETUP = """
    import os, signal, sys, threading, time
    from pathlib import Path
    import numpy as np
    from evenbins import *

    keys = np.arange(100_000)

    def workers():
        names = []
        for task in Path("/proc/self/task").iterdir():
            names.append((task / "comm").read_text().strip())
        return names.count("evenbins")

    def work(threads):
        f = BlockedBloomFilter(len(keys), fpr=0.01)
        f.add_many(keys, threads=threads)
        assert f.contains_many(keys, threads=threads).all()
        return f.to_bytes()

    def in_child(call):
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(30)
                call()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
"""


def run(code: str) -> str:
    """Run code after SETUP in a process; return what it printed."""
    text = textwrap.dedent(SETUP) + textwrap.dedent(code)
    quiet = ["-W", "ignore:This process:DeprecationWarning"]  # of forks, since Python 3.12
    done = subprocess.run([sys.executable, *quiet, "-c", text], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-3000:]
    return done.stdout


def test_the_pool_grows_to_what_is_asked_and_no_further() -> None:
    printed = run("""
        counts = [workers()]
        BlockedBloomFilter(1000).add_many(keys[:1000], threads=16)  # too few keys for a thread
        counts.append(workers())
        for threads in (1, 2, 4, 3, 2, 4):
            work(threads)
            counts.append(workers())
        print(*counts)
    """)
    assert printed.split() == ["0", "0", "0", "1", "3", "3", "3", "3"]


def test_workers_leave_signals_to_the_main_thread() -> None:
    printed = run("""
        work(3)
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().strip() == "evenbins":
                lines = (task / "status").read_text().splitlines()
                blocked = int([line.split()[1] for line in lines if line.startswith("SigBlk")][0], 16)
                print(*(blocked >> number - 1 & 1 for number in
                        (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGSEGV, signal.SIGBUS)))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """)
    assert printed.splitlines() == ["1 1 1 0 0"] * 2 + ["set()"]


def test_workers_run_where_the_caller_may_run() -> None:
    printed = run("""
        cores = sorted(os.sched_getaffinity(0))
        for allowed in (cores[:1], cores, cores[-1:]):
            os.sched_setaffinity(0, allowed)
            work(3)
            tasks = [each for each in Path("/proc/self/task").iterdir()
                     if (each / "comm").read_text().strip() == "evenbins"]
            print(len(tasks), all(sorted(os.sched_getaffinity(int(each.name))) == allowed for each in tasks))
    """)
    assert printed.splitlines() == ["2 True"] * 3


def test_a_child_starts_workers_of_its_own() -> None:
    printed = run("""
        expected = work(4)
        def child():
            assert workers() == 0
            assert work(3) == expected
            assert workers() == 2
            in_child(lambda: work(4) == expected or os._exit(1))  # a child of the child
        in_child(child)
        assert work(4) == expected
        print(workers())
    """)
    assert printed.split() == ["3"]


def test_forks_while_other_threads_are_in_parallel_calls() -> None:
    """The children, forked at random moments, make parallel calls; those of the parent go on."""
    printed = run("""
        expected = work(1)
        stop = threading.Event()
        wrong = []
        def repeat(threads):
            while not stop.is_set():
                if work(threads) != expected:
                    wrong.append(threads)
        others = [threading.Thread(target=repeat, args=(threads,)) for threads in (2, 3, 5)]
        for each in others:
            each.start()
        for _ in range(10):
            in_child(lambda: work(3) == expected or os._exit(1))
        stop.set()
        for each in others:
            each.join()
        print(wrong)
    """)
    assert printed.split() == ["[]"]


def test_a_signal_handler_that_forks_in_the_middle_of_a_call() -> None:
    """In the child, whose workers are the parent's, the call raises an error instead of waiting for them."""
    printed = run("""
        from evenbins import _study
        class Forked(Exception):
            pass
        def fork(*_):
            child = os.fork()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if child:
                raise Forked(child)
            signal.alarm(60)
        signal.signal(signal.SIGALRM, fork)
        def begin():
            while not workers():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGALRM)
        threading.Thread(target=begin).start()
        try:
            _study.simulate_hashing("double", 10_000, 3, 1_000, 1_000, 20_000, 1, 2)
        except Forked as error:
            print(os.waitstatus_to_exitcode(os.waitpid(error.args[0], 0)[1]))
        except RuntimeError as error:
            assert "the process was forked in the middle of this call" in str(error), error
            work(3)  # with workers of its own
            os._exit(7)
    """)
    assert printed.split() == ["7"]


def test_an_exit_while_daemon_threads_use_the_pool() -> None:
    run("""
        begun = threading.Barrier(5)
        def repeat(threads):
            begun.wait()
            while True:
                work(threads)
        for threads in (2, 3, 4, 2):
            threading.Thread(target=repeat, args=(threads,), daemon=True).start()
        begun.wait()
        time.sleep(0.2)
    """)


def test_ctrl_c_stops_a_call_of_several_threads() -> None:
    """The next call works: the workers have been returned."""
    printed = run("""
        many = np.arange(1_000_000)
        f = BloomFilter(len(many), fpr=1e-4)
        def stop():
            while not workers():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=stop).start()
        try:
            while True:
                f.add_many(many, threads=3)
        except KeyboardInterrupt:
            print("stopped")
        work(3)
        print(workers())
    """)
    assert printed.split() == ["stopped", "2"]


def test_many_python_threads_make_parallel_calls_at_once() -> None:
    keys = np.arange(60_000)
    expected = BlockedBloomFilter(len(keys), fpr=0.01)
    expected.add_many(keys, threads=1)
    equal = []

    def work(number: int) -> None:
        for i in range(4):
            f = BlockedBloomFilter(len(keys), fpr=0.01)
            f.add_many(keys, threads=2 + (number + i) % 5)
            equal.append(f == expected and bool(f.contains_many(keys, threads=3).all()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert equal == [True] * 48


def test_a_handler_makes_a_parallel_call_in_the_middle_of_one() -> None:
    keys = np.arange(3_000_000)
    f = BloomFilter(len(keys), fpr=1e-3)
    seen: list[bool] = []

    def ask(*_: object) -> None:
        g = BloomFilter(50_000, fpr=0.01)
        g.add_many(keys[:50_000], threads=3)
        seen.append(bool(g.contains_many(keys[:50_000], threads=3).all()))

    before = signal.signal(signal.SIGALRM, ask)
    try:
        while not seen:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            f.add_many(keys, threads=3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(seen)
    assert f.contains_many(keys).all()


TEXTS = [f"key {i % 30_000}" for i in range(40_000)]
MADE: dict[str, Callable[[], Any]] = {
    "standard": lambda: BloomFilter(50_000, fpr=0.01),
    "blocked": lambda: BlockedBloomFilter(50_000, fpr=0.01),
    "balanced": lambda: BalancedBloomFilter(50_000, fpr=0.01, policy="fill"),
    "counting": lambda: CountingBloomFilter(50_000, fpr=0.01),
    "counting, blocked": lambda: CountingBloomFilter(50_000, fpr=0.01, layout="blocked"),
    "growing": lambda: GrowingFilter(0.01),
    "sharded": lambda: ShardedFilter(50_000, shards=3, fpr=0.01),
}


@pytest.mark.parametrize("name", MADE)
def test_bytes_and_answers_are_the_same_for_any_number_of_threads(name: str) -> None:
    """Of arrays of integers and of strings, with repeats; None included."""
    keys = np.random.default_rng(1).integers(0, 40_000, 60_000)
    texts = np.array(TEXTS)
    asked = np.arange(80_000)
    found = []
    for threads in (1, None, 2, 3, 7, 16):
        f = MADE[name]()
        new = f.add_new_many(texts, threads=threads)
        f.add_many(keys, threads=threads)
        answers = f.contains_many(asked, threads=threads)
        found.append((f.to_bytes(), new.tobytes(), answers.tobytes()))
    assert all(each == found[0] for each in found)


@pytest.mark.filterwarnings("ignore:counter_bits=2 is narrow")  # full counters take part
@pytest.mark.parametrize("layout", ["flat", "blocked"])
def test_removals_are_the_same_for_any_number_of_threads(layout: str) -> None:
    """Keys that come more often than they were added, in one batch: whose turn it is decides."""
    rng = np.random.default_rng(2)
    added, removed = rng.integers(0, 20_000, 50_000), rng.integers(0, 25_000, 150_000)
    found = []
    for threads in (1, None, 2, 3, 7, 16):
        f = CountingBloomFilter(20_000, fpr=0.1, layout=layout, counter_bits=2)
        f.add_many(added, threads=threads)
        answers = f.remove_many(removed, threads=threads)
        found.append((f.to_bytes(), answers.tobytes(), f.count_many(removed, threads=threads).tobytes()))
    assert all(each == found[0] for each in found)
    twin = CountingBloomFilter(20_000, fpr=0.1, layout=layout, counter_bits=2)
    twin.add_many(added)
    one_by_one = []
    for key in removed.tolist():
        there = key in twin
        one_by_one.append(there)
        if there:
            twin.remove(key)
    assert found[0][:2] == (twin.to_bytes(), np.array(one_by_one).tobytes())


def test_keys_before_a_bad_one_are_removed_whatever_the_threads() -> None:
    pa = pytest.importorskip("pyarrow")
    n = 50_000
    for layout in ("flat", "blocked"):
        for at in (5, 20_000, n - 1):
            column = pa.array([None if i == at else i for i in range(n)])
            f = CountingBloomFilter(n, fpr=0.01, layout=layout)
            f.add_many(np.arange(n))
            expected = f.copy()
            expected.remove_many(np.arange(at))
            with pytest.raises((TypeError, ValueError), match=str(at)):
                f.remove_many(column, threads=3)
            assert f == expected, (layout, at)


@pytest.mark.parametrize("exact", [False, True])
def test_a_deduplicator_keeps_the_same_rows(exact: bool) -> None:
    keys = np.random.default_rng(3).integers(0, 60_000, 80_000)
    kept = []
    for threads in (1, None, 2, 7):
        d = Deduplicator(exact=True) if exact else Deduplicator(fpr=1e-3)
        first = d.keep(keys, threads=threads)
        kept.append((first.tobytes(), d.contains_many(keys[::-1] + 9, threads=threads).tobytes()))
    assert all(each == kept[0] for each in kept)


def test_a_sketch_of_distinct_keys_is_the_same() -> None:
    sketches = []
    for threads in (1, None, 3):
        h = HyperLogLog()
        h.add_many(np.arange(300_000), threads=threads)
        sketches.append(h.to_bytes())
    assert sketches[0] == sketches[1] == sketches[2]
