"""What is left of the machine's memory: as the kernel says it, and as the limits of control groups say it."""

from pathlib import Path

import pytest

from dibs.supervise.host_memory import memory_available

GIB = 2**30


def a_machine(root: Path, groups: str, files: dict[str, str]) -> str:
    """Its kernel has 2 TiB available."""
    memory = f"MemTotal: 9 kB\nMemAvailable: {2 * 2**30} kB\n"
    for name, text in {"proc/meminfo": memory, "proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def group(place: str, limit: object, used: int, cache: int, *, old: bool = False) -> dict[str, str]:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit_name, used_name, cache_name = names if old else ("memory.max", "memory.current", "inactive_file")
    return {
        f"{place}/{limit_name}": f"{limit}\n",
        f"{place}/{used_name}": f"{used}\n",
        f"{place}/memory.stat": f"anon 5\n{cache_name} {cache}\n",
    }


def test_without_limits_it_is_what_the_kernel_says(tmp_path: Path) -> None:
    root = a_machine(tmp_path, "0::/user.slice\n", group("sys/fs/cgroup/user.slice", "max", 7, 0))

    assert memory_available(root) == 2048 * GIB


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/\n", group("sys/fs/cgroup", 128 * GIB, 30 * GIB, 2 * GIB)),  # in a container
        ("1:cpu:/\n0::/a/b\n", group("sys/fs/cgroup/a", 128 * GIB, 30 * GIB, 2 * GIB)),  # of a group above ours
        ("4:cpu,memory:/job\n0::/\n", group("sys/fs/cgroup/memory/job", 128 * GIB, 30 * GIB, 2 * GIB, old=True)),
    ],
)
def test_a_limit_of_our_control_group_counts_without_what_it_can_give_back(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    assert memory_available(a_machine(tmp_path, groups, files)) == 100 * GIB


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert memory_available(str(tmp_path)) is None


def test_of_this_machine_it_is_known() -> None:
    assert (memory_available() or 0) > 0
