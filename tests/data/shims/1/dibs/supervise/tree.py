"""All processes below this one: finding, signalling and ending them.

Works in a subreaper: whoever loses its parent becomes our child, so killing children again and again until
none is left ends double forks, own sessions and closed descriptors alike. Standard library only.
"""

import errno
import os
import signal
import time


def descendants(root: int) -> dict[int, int]:
    """Every process below `root`, as {pid: parent}."""
    found: dict[int, int] = {}
    frontier = [root]
    while frontier:
        parent = frontier.pop()
        for child in _children(parent):
            if child not in found:
                found[child] = parent
                frontier.append(child)
    return found


def signal_tree(root: int, number: int) -> int:
    """Send a signal to every process below `root`; return how many were there."""
    tree = descendants(root)
    for pid, parent in tree.items():
        _signal_child_of(pid, parent, root, number)
    return len(tree)


def end_children() -> int:
    """Kill whatever is left below this process and reap it; return how many were found at first.

    A process in uninterruptible sleep keeps us here: its GPU must not be given away.
    """
    if not reap():
        return 0
    # Stop first, so that a fork storm cannot outrun the killing.
    found = signal_tree(os.getpid(), signal.SIGSTOP)
    pause = 0.0005
    while True:
        signal_tree(os.getpid(), signal.SIGKILL)
        if not reap():
            return found
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def reap() -> bool:
    """Collect ended children; return whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _signal_child_of(pid: int, parent: int, root: int, number: int) -> None:
    """Signal exactly the process that was found, never a stranger that got its number meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel or a strict container
            handle = -1
        else:
            return
    try:
        # Still where it was found, or handed to us because its parent died.
        if _parent_of(pid) in (parent, root):
            if handle >= 0:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself, or became another user (sudo): nothing we may do
    finally:
        if handle >= 0:
            os.close(handle)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN, or gVisor
        except OSError:
            continue
    return found


def _children_by_scan(parent: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(int(name)) == parent]


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses too: count from its end.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
