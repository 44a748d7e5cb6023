"""What `threads=None` stands for: the cores that may be used, a quota of control groups, EVENBINS_THREADS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import BlockedBloomFilter, _cores

V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "31 24 0:27 {top} /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct"
OTHER = "29 24 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


def tree(root: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """Write a tree of /proc and /sys."""
    texts = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", None),
        ("100000 100000", 1),
        ("150000 100000", 2),  # rounded up
        ("1000 100000", 1),
        ("1600000 100000", 16),
        ("", None),
        ("nonsense", None),
        ("1 2 3", None),
        ("0 100000", None),
        ("100000 0", None),
    ],
)
def test_a_quota_of_version_2(tmp_path: Path, text: str, cores: int | None) -> None:
    root = tree(tmp_path, "0::/a/b", V2, {"sys/fs/cgroup/a/b/cpu.max": text})
    assert _cores.cores_of_quota(root) == cores


def test_the_least_quota_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/b/c/cpu.max": "max 100000",
        "sys/fs/cgroup/a/b/cpu.max": "500000 100000",
        "sys/fs/cgroup/a/cpu.max": "300000 100000",
        "sys/fs/cgroup/cpu.max": "900000 100000",
        "sys/fs/cgroup/other/cpu.max": "100000 100000",
    }
    assert _cores.cores_of_quota(tree(tmp_path, "0::/a/b/c", V2, files)) == 3


def test_a_quota_of_version_1(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/jobs"
    files = {f"{folder}/cpu.cfs_quota_us": "250000", f"{folder}/cpu.cfs_period_us": "100000"}
    groups = "5:memory:/jobs\n4:cpu,cpuacct:/jobs\n0::/"
    root = tree(tmp_path, groups, "\n".join([OTHER, V1.format(top="/")]), files)
    assert _cores.cores_of_quota(root) == 3
    (root / folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert _cores.cores_of_quota(root) is None


def test_both_versions_at_once(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/a/cpu.max": "200000 100000",
    }
    root = tree(tmp_path, "4:cpu:/\n0::/a", f"{V1.format(top='/')}\n{V2}", files)
    assert _cores.cores_of_quota(root) == 2


@pytest.mark.parametrize(("top", "path"), [("/docker/x", "/docker/x"), ("/docker/x", "/"), ("/", "/../../y")])
def test_a_container_sees_its_own_group_at_the_mount(tmp_path: Path, top: str, path: str) -> None:
    """The path may be the host's, with the container's part mounted; or outside of what is mounted."""
    folder = "sys/fs/cgroup/cpu,cpuacct"
    files = {f"{folder}/cpu.cfs_quota_us": "200000", f"{folder}/cpu.cfs_period_us": "100000"}
    assert _cores.cores_of_quota(tree(tmp_path, f"4:cpu,cpuacct:{path}", V1.format(top=top), files)) == 2


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    mount = V2.replace("/sys/fs/cgroup", "/my\\040groups")
    root = tree(tmp_path, "0::/a", mount, {"my groups/a/cpu.max": "700000 100000"})
    assert _cores.cores_of_quota(root) == 7


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert _cores.cores_of_quota(tmp_path) is None


@settings(max_examples=50)
@given(groups=st.text(max_size=40), mounts=st.text(max_size=80))
def test_any_text_is_read_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, groups: str, mounts: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "tree"
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(groups, errors="surrogateescape")
    (root / "proc/self/mountinfo").write_text(mounts, errors="surrogateescape")
    assert _cores.cores_of_quota(root) is None


def test_the_quota_is_a_limit_and_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cores._core, "thread_limit", lambda quota: min(64, quota))
    seconds, quotas = [1000.0], [5]
    monkeypatch.setattr(_cores.time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(_cores, "cores_of_quota", lambda: quotas[0])
    monkeypatch.setattr(_cores, "_quota", (0.0, 1))
    assert _cores.available_threads() == 5
    quotas[0] = 3
    assert _cores.available_threads() == 5
    seconds[0] += 1.1
    assert _cores.available_threads() == 3
    quotas[0] = None
    seconds[0] += 1.1
    assert _cores.available_threads() == 64


def test_the_quota_limits_the_cores() -> None:
    assert _cores._core.thread_limit(1) == 1
    assert 1 <= _cores._core.thread_limit(1024) <= len(os.sched_getaffinity(0))


def test_the_setting_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENBINS_THREADS", "1")
    assert _cores.checked_threads(None) == 1
    assert _cores.checked_threads(7) == 7  # an argument says what it says
    monkeypatch.setenv("EVENBINS_THREADS", "1" + 30 * "0")
    most = _cores.checked_threads(None)
    monkeypatch.setenv("EVENBINS_THREADS", "")
    assert _cores.checked_threads(None) == most
    monkeypatch.delenv("EVENBINS_THREADS")
    assert _cores.checked_threads(None) == most


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " ", "2x", "000"])
def test_a_wrong_setting_names_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("EVENBINS_THREADS", text)
    f = BlockedBloomFilter(100)
    with pytest.raises(
        ValueError, match="environment variable EVENBINS_THREADS must be a whole number from 1 on, not '"
    ):
        f.add_many(np.arange(10))
    f.add_many(np.arange(10), threads=1)  # nothing is read where it is not needed


def test_affinity_is_read_afresh() -> None:
    code = """
import os
from evenbins import _cores
cores = sorted(os.sched_getaffinity(0))
before = _cores.available_threads()
os.sched_setaffinity(0, cores[:1])
one = _cores.available_threads()
os.sched_setaffinity(0, cores)
print(before == _cores.available_threads() <= len(cores), one)
"""
    plain = {name: value for name, value in os.environ.items() if name != "EVENBINS_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=plain
    )
    assert done.stdout.split() == ["True", "1"]


@pytest.mark.parametrize(
    ("threads", "keys", "useful"), [(8, 1000, 1), (8, 0, 1), (8, 20_000, 2), (2, 10**9, 2)]
)
def test_threads_that_pay_off(threads: int, keys: int, useful: int) -> None:
    assert _cores.useful_threads(threads, keys) == useful
