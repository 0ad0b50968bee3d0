from __future__ import annotations

from pathlib import Path

import pytest

from cenote.cores import cgroup_quota, num_cores


def root(tmp_path: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("cgroup", "files", "quota"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "200000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/b/cpu.max": "100000 100000"}, 0.5),
        ("0::/host/path\n", {"sys/fs/cgroup/cpu.max": "300000 100000"}, 3.0),
        (
            "4:cpu,cpuacct:/box\n",
            {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "250000", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        ("4:cpu:/\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None),
        ("4:cpuset:/\n0::/\n", {"sys/fs/cgroup/cpu.max": "nonsense"}, None),
    ],
)
def test_quota_is_the_tightest_on_the_way_up(
    tmp_path: Path, cgroup: str, files: dict[str, str], quota: float | None
) -> None:
    assert cgroup_quota(root(tmp_path, cgroup, files)) == quota


@pytest.mark.parametrize(
    ("quota", "affinity", "cores"),
    [(10, 8, 1), (100, 8, 1), (150, 8, 2), (900, 8, 8), (400, 2, 2)],
)
def test_cores_follow_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: int, affinity: int, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
    assert num_cores(root(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": f"{quota} 100"})) == cores


def test_without_cgroups_affinity_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert num_cores(tmp_path) == 3
