"""AMD cards, read from the files of the kernel's driver amdgpu.

docs.kernel.org describes them under gpu/amdgpu. KFD is the part of the driver that ROCm computes through.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from dibs.gpus.amd_processes import AmdProcesses
from dibs.gpus.clock import utc_now
from dibs.gpus.each import CardLost, CardReader
from dibs.gpus.kfd import KfdNode, links_between, nodes
from dibs.gpus.probe import refuse_twins
from dibs.gpus.sysfs import listed, number_in, text_in
from dibs.model.gpus import Gpu, GpuReading, Links, Reading

_VENDOR = "0x1002"
_LEAST_MEMORY = 2 * 1024**3  # bytes; what has less is built into a processor and draws its screen
_FIND_EVERY = 30.0  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class _Card:
    folder: str
    pci: str
    gpu: Gpu
    node: KfdNode | None  # None where ROCm does not know the card


class AmdProbe:
    """Reads the kernel's files under `root`. What a card does not tell is None.

    Numbers follow ROCm, which counts the nodes of KFD; cards that it does not know come last, by their bus.
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
        """How many cards there are that jobs could be given."""
        return len(self._find())

    def read(self, *, energy: bool = False) -> Reading:
        with self._one_at_a_time:
            if self._found_at is None or self._clock() - self._found_at >= _FIND_EVERY:
                found = self._find()
                refuse_twins(card.gpu for card in found)
                # A card that fell off the bus is not shown any more. It is told as lost, not forgotten.
                there = {card.gpu.key for card in found}
                gone = (card for card in self._cards if card.gpu.key not in there)
                self._cards = tuple(sorted((*found, *gone), key=lambda card: card.gpu.index))
                self._links = self._links or links_between({card.gpu.key: card.node for card in found})
                self._found_at = self._clock()
            return Reading(
                at=self._now(),
                gpus=self._reader.read([(card.gpu, partial(self._read_card, card)) for card in self._cards]),
                driver=f"AMD amdgpu {text_in(f'{self._root}/sys/module/amdgpu/version')}".strip(),
                links=self._links,
            )

    # -- which cards there are -------------------------------------------------------------------------

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
                        key=f"AMD-{text_in(f'{folder}/unique_id') or pci}",
                        index=known.get(pci, index),
                        name=self._name(folder),
                        memory_total=number_in(f"{folder}/mem_info_vram_total"),
                        cpus=_cpus(text_in(f"{folder}/local_cpulist")),
                        address=str(index) if node is None else ",".join(map(str, node.ranks)),
                    ),
                )
            )
        return tuple(cards)

    def _folders(self) -> Iterator[tuple[str, str]]:
        """The place of each card on the bus, and the folder of its files."""
        drm = f"{self._root}/sys/class/drm"
        for name in listed(drm):
            folder = f"{drm}/{name}/device"
            # Beside card0 stand its outputs, like card0-DP-1.
            if not name.removeprefix("card").isdigit() or text_in(f"{folder}/vendor") != _VENDOR:
                continue
            facts = dict(line.partition("=")[::2] for line in text_in(f"{folder}/uevent").splitlines())
            if (number_in(f"{folder}/mem_info_vram_total") or 0) >= _LEAST_MEMORY:
                yield facts.get("PCI_SLOT_NAME", name), folder

    def _name(self, folder: str) -> str:
        """Server cards carry their name; of others libdrm has a list, where it is installed."""
        if name := text_in(f"{folder}/product_name"):
            return name
        device = text_in(f"{folder}/device").removeprefix("0x")
        revision = text_in(f"{folder}/revision").removeprefix("0x")
        for line in text_in(f"{self._root}/usr/share/libdrm/amdgpu.ids").splitlines():
            fields = [field.strip() for field in line.split(",", 2)]
            if len(fields) == 3 and (fields[0].lower(), fields[1].lower()) == (device, revision):
                return fields[2]
        return f"AMD {device}".strip()

    # -- what they say ---------------------------------------------------------------------------------

    def _read_card(self, card: _Card) -> GpuReading:
        folder = card.folder
        used = number_in(f"{folder}/mem_info_vram_used")
        if used is None and not os.path.exists(folder):
            raise CardLost
        hwmon = next((f"{folder}/hwmon/{name}" for name in listed(f"{folder}/hwmon")), "")
        # The edge of the chip; the newest cards tell of its hottest place only.
        millidegrees = _first(f"{hwmon}/temp1_input", f"{hwmon}/temp2_input")
        microwatts = _first(f"{hwmon}/power1_average", f"{hwmon}/power1_input")
        return GpuReading(
            gpu=card.gpu,
            memory_used=used,
            load=number_in(f"{folder}/gpu_busy_percent"),
            temperature=None if millidegrees is None else millidegrees // 1000,
            power=None if microwatts is None else microwatts / 1_000_000,
            ecc_uncorrected=_uncorrected(text_in(f"{folder}/ras/umc_err_count")),
            processes=self._processes.on(card.pci, card.node),
        )


def _rank(node: KfdNode | None) -> int:
    return 9999 if node is None else node.ranks[0]


def _first(*paths: str) -> int | None:
    return next((number for path in paths if (number := number_in(path)) is not None), None)


def _uncorrected(counts: str) -> int | None:
    """Out of `ue: 0` and `ce: 12`, a line each: errors of the memory that were not corrected, and that were."""
    for line in counts.splitlines():
        kind, _, number = line.partition(":")
        if kind.strip() == "ue" and number.strip().isdigit():
            return int(number)
    return None


def _cpus(text: str) -> tuple[int, ...]:
    """Out of `0-47,96-143`."""
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)
