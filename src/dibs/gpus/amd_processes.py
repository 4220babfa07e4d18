"""Who uses an AMD card, as far as the kernel tells."""

import os
from collections.abc import Iterator

from dibs.gpus.kfd import KfdNode
from dibs.gpus.owners import Owners
from dibs.gpus.sysfs import listed, number_in, text_in
from dibs.model.gpus import GpuProcess


class AmdProcesses:
    """KFD lists everybody who computes through ROCm, with their memory on each card.

    Where it is not there, the open files of those processes that we may look into tell the same.
    """

    def __init__(self, root: str) -> None:
        self._computing = f"{root}/sys/class/kfd/kfd/proc"
        self._proc = f"{root}/proc"
        self._owners = Owners(self._proc)

    def on(self, pci: str, node: KfdNode | None) -> tuple[GpuProcess, ...]:
        if node is not None and os.path.isdir(self._computing):
            return tuple(self._through_kfd(node.gpu_ids))
        return tuple(self._through_files(pci))

    def _through_kfd(self, gpu_ids: tuple[str, ...]) -> Iterator[GpuProcess]:
        for name in listed(self._computing):
            if not name.isdigit():
                continue
            # Every process of ROCm has a file for every card, or part of one, that it could use.
            memory = sum(number_in(f"{self._computing}/{name}/vram_{gpu_id}") or 0 for gpu_id in gpu_ids)
            if memory:
                yield self._process(int(name), memory, "compute")

    def _through_files(self, pci: str) -> Iterator[GpuProcess]:
        counted: set[str] = set()  # clients: one that was inherited is open in several processes
        for name in listed(self._proc):
            if not name.isdigit():
                continue
            memory, draws, uses = 0, False, False
            for facts in self._clients(name, pci):
                if (client := facts.get("drm-client-id", "")) not in counted:
                    counted.add(client)
                    uses = True
                    draws |= _amount(facts, "drm-engine-gfx") > 0
                    memory += _amount(facts, "drm-memory-vram")
            if uses:
                yield self._process(int(name), memory, "graphics" if draws else "compute")

    def _clients(self, pid: str, pci: str) -> Iterator[dict[str, str]]:
        """What the driver tells of each of its files that this process has open."""
        for fd in listed(f"{self._proc}/{pid}/fd"):
            try:
                if not os.readlink(f"{self._proc}/{pid}/fd/{fd}").startswith("/dev/dri/"):
                    continue
            except OSError:
                continue
            lines = text_in(f"{self._proc}/{pid}/fdinfo/{fd}").splitlines()
            facts = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
            if facts.get("drm-pdev") == pci:
                yield facts

    def _process(self, pid: int, memory: int, kind: str) -> GpuProcess:
        owner = self._owners.of(pid)
        return GpuProcess(
            pid=pid,
            user=owner.user if owner else None,
            memory=memory,
            kind=kind,
            name=owner.name if owner else "",
        )


def _amount(facts: dict[str, str], key: str) -> int:
    """Out of `2048 KiB` or `1200 ns`."""
    number, _, unit = facts.get(key, "").partition(" ")
    return int(number) * {"KiB": 1024, "MiB": 1024**2}.get(unit.strip(), 1) if number.isdigit() else 0
