"""Filters beyond the caches, filled part by part (cpp/partitioned.cpp): the bytes of small calls."""

import signal
import threading

import numpy as np
import pytest

from evenbins import BloomFilter, CountingBloomFilter

KEYS = 400_000  # more than one for every ten lines of 64 MiB


def standard() -> BloomFilter:
    return BloomFilter(39_000_000, fpr=1e-3)  # 67 MiB


def counting() -> CountingBloomFilter:
    return CountingBloomFilter(10_000_000, fpr=1e-3)  # 69 MiB


def keys(count: int = KEYS) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 2**63, count)


@pytest.mark.parametrize("make", [standard, counting])
def test_bytes_are_those_of_small_calls(make):
    """Calls of 10,000 keys touch too few lines to be partitioned."""
    expected, many = make(), keys()
    assert expected.nbytes > 2**26
    for start in range(0, KEYS, 10_000):
        expected.add_many(many[start : start + 10_000], threads=1)
    for threads in (1, 2, 3, 7):
        filter = make()
        filter.add_many(many, threads=threads)
        assert filter == expected, threads
    filter.add_many(many, threads=2)  # once more: bits are as they were, counters are not
    assert (filter == expected) is (make is standard)


@pytest.mark.parametrize("make", [standard, counting])
def test_one_key_many_times(make):
    """All items of all keys lead to the same few parts."""
    filter, expected = make(), make()
    filter.add_many(np.full(KEYS, 5), threads=2)
    for _ in range(KEYS // 10_000):
        expected.add_many(np.full(10_000, 5), threads=1)
    assert filter == expected
    assert 5 in filter
    assert 6 not in filter


def test_keys_before_a_bad_one_are_in():
    """Of a column, all of whose keys one pass would have added."""
    pa = pytest.importorskip("pyarrow")
    filter, expected = standard(), standard()
    names = [str(key) for key in keys().tolist()]
    with pytest.raises(ValueError, match=r"keys\[300000\].*the keys before it have been added"):
        filter.add_many(pa.array([*names[:300_000], None, *names[300_000:]]), threads=2)
    expected.add_many(names[:300_000])
    assert filter == expected


def test_interrupted():
    """A pass that is stopped has added nothing, or all of its keys; all that the error counts are in."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    many, filter = keys(20_000_000), standard()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        with pytest.raises(KeyboardInterrupt, match=r"stopped after \d+ keys") as error:
            filter.add_many(many, threads=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    added = int(str(error.value).split()[2])
    assert added < len(many)
    assert filter.contains_many(many[:added]).all()


def test_looked_up_while_it_is_filled():
    """Keys of an earlier call are found at every moment."""
    filter, first, second = standard(), keys(), keys(3_000_000)[KEYS:]
    filter.add_many(first, threads=2)
    writer = threading.Thread(target=filter.add_many, args=(second,), kwargs={"threads": 1})
    writer.start()
    while writer.is_alive():
        assert filter.contains_many(first[:20_000]).all()
    writer.join()
    assert filter.contains_many(second).all()
