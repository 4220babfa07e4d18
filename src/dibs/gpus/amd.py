"""AMD GPUs, read from the files of the kernel's driver amdgpu.

docs.kernel.org describes them under gpu/amdgpu. KFD is the part of the driver that ROCm uses.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain

from dibs.dataclass import dataclass
from dibs.gpus.card_reader import CardLost, CardReader
from dibs.gpus.probe import require_distinct, utc_now
from dibs.gpus.processes import ProcessOwners
from dibs.model.gpus import Gpu, GpuProcess, GpuReading, Links, Reading
from dibs.model.units import parse_ranges

_VENDOR = "0x1002"
_LEAST_MEMORY = 2 * 1024**3  # bytes; with less it is built into a processor, for its screen
_FIND_EVERY = 30.0  # seconds
_XGMI = 11  # the kernel's number for a link from card to card
_OVER_XGMI = 100  # and one more for each 10 GB/s: better than any path over PCI
_OVER_PCI = 99  # less the kernel's weight of the path: 40 within one CPU, 72 from one to another


@dataclass(frozen=True, kw_only=True, slots=True)
class KfdNode:
    """A card in KFD. A divided card has a node for each part, and is described by the first of them."""

    folder: str
    number: int  # among all nodes; CPUs are nodes too
    ranks: tuple[int, ...]  # of its parts among all parts: the numbers in ROCR_VISIBLE_DEVICES
    gpu_ids: tuple[str, ...]  # of its parts, as in the files of a process
    unique_id: int  # 0 where the card has none
    pci: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Card:
    folder: str
    pci: str
    gpu: Gpu
    node: KfdNode | None  # None where ROCm does not know the card


class AmdProbe:
    """Reads the kernel's files under `root`. A value that a card does not report is None.

    GPUs are numbered as in ROCm, by the nodes of KFD; cards that it does not know come last, by bus address.
    """

    def __init__(
        self,
        root: str = "/",
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root.rstrip("/")
        self._now = now
        self._clock = clock
        self._reader = CardReader(clock=clock)
        self._processes = AmdProcesses(self._root)
        self._cards: tuple[_Card, ...] = ()
        self._links: Links = {}
        self._found_at: float | None = None
        self._one_at_a_time = threading.Lock()

    def count(self) -> int:
        """How many GPUs there are that jobs could use."""
        return len(self._find())

    def read(self, *, energy: bool = False) -> Reading:
        with self._one_at_a_time:
            if self._found_at is None or self._clock() - self._found_at >= _FIND_EVERY:
                found = self._find()
                require_distinct(card.gpu for card in found)
                # A card that fell off the bus is not _list_folder any more. It is reported as lost, not forgotten.
                there = {card.gpu.key for card in found}
                gone = (card for card in self._cards if card.gpu.key not in there)
                self._cards = tuple(sorted((*found, *gone), key=lambda card: card.gpu.index))
                self._links = self._links or links_between({card.gpu.key: card.node for card in found})
                self._found_at = self._clock()
            return Reading(
                at=self._now(),
                gpus=self._reader.read([(card.gpu, partial(self._read_card, card)) for card in self._cards]),
                driver=f"AMD amdgpu {_read_text(f'{self._root}/sys/module/amdgpu/version')}".strip(),
                links=self._links,
            )

    # -- finding the cards -----------------------------------------------------------------------------

    def _find(self) -> tuple[_Card, ...]:
        by_bus = {node.pci: node for node in nodes(self._root)}
        known = {card.pci: card.gpu.index for card in self._cards}
        folders = sorted(self._folders(), key=lambda one: (_rank(by_bus.get(one[0])), one[0]))
        cards = []
        for index, (pci, folder) in enumerate(folders):
            node = by_bus.get(pci)
            cards.append(
                _Card(
                    folder=folder,
                    pci=pci,
                    node=node,
                    gpu=Gpu(
                        key=f"AMD-{_read_text(f'{folder}/unique_id') or pci}",
                        index=known.get(pci, index),
                        name=self._name(folder),
                        memory_total=_read_number(f"{folder}/mem_info_vram_total"),
                        cpus=_cpus(_read_text(f"{folder}/local_cpulist")),
                        address=str(index) if node is None else ",".join(map(str, node.ranks)),
                    ),
                )
            )
        return tuple(cards)

    def _folders(self) -> Iterator[tuple[str, str]]:
        """The bus address of each card, and the folder of its files."""
        drm = f"{self._root}/sys/class/drm"
        for name in _list_folder(drm):
            folder = f"{drm}/{name}/device"
            # Next to card0 are its outputs, like card0-DP-1.
            if not name.removeprefix("card").isdigit() or _read_text(f"{folder}/vendor") != _VENDOR:
                continue
            facts = dict(line.partition("=")[::2] for line in _read_text(f"{folder}/uevent").splitlines())
            if (_read_number(f"{folder}/mem_info_vram_total") or 0) >= _LEAST_MEMORY:
                yield facts.get("PCI_SLOT_NAME", name), folder

    def _name(self, folder: str) -> str:
        """Server cards report their name; for others libdrm has a list, where it is installed."""
        if name := _read_text(f"{folder}/product_name"):
            return name
        device = _read_text(f"{folder}/device").removeprefix("0x")
        revision = _read_text(f"{folder}/revision").removeprefix("0x")
        for line in _read_text(f"{self._root}/usr/share/libdrm/amdgpu.ids").splitlines():
            fields = [field.strip() for field in line.split(",", 2)]
            if len(fields) == 3 and (fields[0].lower(), fields[1].lower()) == (device, revision):
                return fields[2]
        return f"AMD {device}".strip()

    # -- reading a card --------------------------------------------------------------------------------

    def _read_card(self, card: _Card) -> GpuReading:
        folder = card.folder
        used = _read_number(f"{folder}/mem_info_vram_used")
        if used is None and not os.path.exists(folder):
            raise CardLost
        hwmon = next((f"{folder}/hwmon/{name}" for name in _list_folder(f"{folder}/hwmon")), "")
        # The edge of the chip; the newest cards report only its hottest point.
        millidegrees = _first(f"{hwmon}/temp1_input", f"{hwmon}/temp2_input")
        microwatts = _first(f"{hwmon}/power1_average", f"{hwmon}/power1_input")
        return GpuReading(
            gpu=card.gpu,
            memory_used=used,
            load=_read_number(f"{folder}/gpu_busy_percent"),
            temperature=None if millidegrees is None else millidegrees // 1000,
            power=None if microwatts is None else microwatts / 1_000_000,
            ecc_uncorrected=_uncorrected(_read_text(f"{folder}/ras/umc_err_count")),
            processes=self._processes.on(card.pci, card.node),
        )


def _rank(node: KfdNode | None) -> int:
    return 9999 if node is None else node.ranks[0]


def _first(*paths: str) -> int | None:
    return next((number for path in paths if (number := _read_number(path)) is not None), None)


def _uncorrected(counts: str) -> int | None:
    """From the lines `ue: 0` and `ce: 12`: memory errors that were not corrected, and that were."""
    for line in counts.splitlines():
        kind, _, number = line.partition(":")
        if kind.strip() == "ue" and number.strip().isdigit():
            return int(number)
    return None


def _cpus(text: str) -> tuple[int, ...]:
    """From `0-47,96-143`."""
    try:
        return tuple(chain.from_iterable(parse_ranges(text)))
    except ValueError:
        return ()


class AmdProcesses:
    """The processes on a card. KFD lists all that use ROCm, with their memory on each card.

    Without KFD, the open files of the processes that we may inspect give the same.
    """

    def __init__(self, root: str) -> None:
        self._computing = f"{root}/sys/class/kfd/kfd/proc"
        self._proc = f"{root}/proc"
        self._owners = ProcessOwners(self._proc)

    def on(self, pci: str, node: KfdNode | None) -> tuple[GpuProcess, ...]:
        if node is not None and os.path.isdir(self._computing):
            return tuple(self._through_kfd(node.gpu_ids))
        return tuple(self._through_files(pci))

    def _through_kfd(self, gpu_ids: tuple[str, ...]) -> Iterator[GpuProcess]:
        for name in _list_folder(self._computing):
            if not name.isdigit():
                continue
            # A ROCm process has a file for each card, or part of one, that it could use.
            memory = sum(_read_number(f"{self._computing}/{name}/vram_{gpu_id}") or 0 for gpu_id in gpu_ids)
            if memory:
                yield self._process(int(name), memory, "compute")

    def _through_files(self, pci: str) -> Iterator[GpuProcess]:
        counted: set[str] = set()  # clients: an inherited one is open in several processes
        for name in _list_folder(self._proc):
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
        """What the driver reports for each of its files that this process has open."""
        for fd in _list_folder(f"{self._proc}/{pid}/fd"):
            try:
                if not os.readlink(f"{self._proc}/{pid}/fd/{fd}").startswith("/dev/dri/"):
                    continue
            except OSError:
                continue
            lines = _read_text(f"{self._proc}/{pid}/fdinfo/{fd}").splitlines()
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
    """From `2048 KiB` or `1200 ns`."""
    number, _, unit = facts.get(key, "").partition(" ")
    return int(number) * {"KiB": 1024, "MiB": 1024**2}.get(unit.strip(), 1) if number.isdigit() else 0


def nodes(root: str) -> list[KfdNode]:
    """The cards in ROCm's order; none without KFD."""
    found: list[KfdNode] = []
    rank = 0
    top = f"{root}/sys/class/kfd/kfd/topology/nodes"
    for number in sorted(int(name) for name in _list_folder(top) if name.isdigit()):
        folder = f"{top}/{number}"
        gpu_id = _read_text(f"{folder}/gpu_id")
        if gpu_id not in ("", "0"):  # 0 is a CPU
            facts = _facts(f"{folder}/properties")
            place = facts.get("location_id", 0)
            pci = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            node = KfdNode(
                folder=folder,
                number=number,
                ranks=(rank,),
                gpu_ids=(gpu_id,),
                unique_id=facts.get("unique_id", 0),
                pci=pci,
            )
            rank += 1
            if found and _is_part(node, found[-1]):
                last = found.pop()
                node = replace(last, ranks=last.ranks + node.ranks, gpu_ids=last.gpu_ids + node.gpu_ids)
            found.append(node)
    return found


def links_between(cards: Mapping[str, KfdNode | None]) -> Links:
    """How well each pair of these cards is connected, by key."""
    keys = {node.number: key for key, node in cards.items() if node is not None}
    links: dict[tuple[str, str], int] = {}
    for key, node in cards.items():
        if node is None:
            continue
        for kind in ("io_links", "p2p_links"):
            for name in _list_folder(f"{node.folder}/{kind}"):
                facts = _facts(f"{node.folder}/{kind}/{name}/properties")
                other = keys.get(facts.get("node_to", -1))
                if other is not None and other != key:
                    pair = min(key, other), max(key, other)
                    links[pair] = max(links.get(pair, 0), _quality(facts))
    return links


def _is_part(node: KfdNode, card: KfdNode) -> bool:
    """Parts share the id of their card. The kernel numbers them in the function of the PCI address."""
    return node.unique_id == card.unique_id != 0 and node.pci[:-1] == card.pci[:-1]


def _quality(facts: Mapping[str, int]) -> int:
    if facts.get("type") == _XGMI:
        return _OVER_XGMI + max(1, facts.get("max_bandwidth", 0) // 10_000)  # it is in MB/s
    return max(0, _OVER_PCI - facts.get("weight", _OVER_PCI))


def _facts(path: str) -> dict[str, int]:
    """From lines like `location_id 49408`."""
    found = {}
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found


def _read_text(path: str) -> str:
    """The content of a kernel file; empty where it is missing or cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _read_number(path: str) -> int | None:
    text = _read_text(path)
    return int(text) if text.lstrip("-").isdigit() and text.isascii() else None


def _list_folder(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
