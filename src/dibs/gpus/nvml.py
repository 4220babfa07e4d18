"""Calls to NVML, for old and new drivers and bindings, and the devices found with it: cards, MIG parts, links."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from dibs.dataclass import dataclass
from dibs.gpus.card_reader import CardLost, CardQueries
from dibs.model.gpus import Gpu, Links

_FIRST_DEADLINE = 4.0  # seconds; a driver without persistence mode has to wake its cards first
_LATER_DEADLINE = 1.0  # seconds, when the cards are known and awake
_OVER_NVLINK = 100  # and one more for each link: better than any path over PCI
_OVER_PCI = 50  # less NVML's topology level: 0 on one board, 50 across sockets
_MOST_NVLINKS = 36

_Bus = tuple[int, int, int]


class Nvml:
    """The module `pynvml`, with None for all that cannot be answered."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def ask(self, call: str, *arguments: Any) -> Any:
        """One call; None where the card, the driver or the binding cannot answer it.

        Raises CardLost where the card is gone.
        """
        module = self.module
        function = getattr(module, call, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except module.NVMLError as error:
            if error.value in (module.NVML_ERROR_GPU_IS_LOST, module.NVML_ERROR_RESET_REQUIRED):
                raise CardLost from error
            return None
        except module.NVMLLibraryMismatchError:  # the driver is older than the binding; not an NVMLError
            return None

    def text(self, call: str, *arguments: Any) -> str:
        """The same for text; empty where there is no answer. Older bindings return bytes."""
        answer = self.ask(call, *arguments)
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer or "")

    def memory(self, handle: Any) -> Any:
        """The second version counts the memory that the driver reserves separately; no job can use that."""
        second = getattr(self.module, "nvmlMemory_v2", None)
        with_reserved = self.ask("nvmlDeviceGetMemoryInfo", handle, second) if second else None
        return with_reserved or self.ask("nvmlDeviceGetMemoryInfo", handle)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundCard:
    """A GPU for jobs: a whole card, or a part of one."""

    handle: Any
    gpu: Gpu
    board: str  # the UUID of the card as a whole
    instance: int | None = None  # the number of the part in NVML's events


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    handle: Any
    key: str
    name: str
    memory_total: int | None
    part: int | None = None
    instance: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Board:
    """A physical card. One that MIG divides has only its parts as pieces, which may be none."""

    handle: Any
    key: str
    bus: _Bus
    cpus: tuple[int, ...]
    pieces: tuple[_Piece, ...]
    is_divided: bool
    nvlinks: Mapping[_Bus, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundDevices:
    """The cards in PCI order, the boards by UUID, and whether every board has answered."""

    cards: tuple[FoundCard, ...] = ()
    boards: Mapping[str, Any] = field(default_factory=dict)  # handles
    links: Links = field(default_factory=dict)
    has_parts: bool = False
    is_complete: bool = False


class DeviceFinder:
    """Finds the cards. One that no longer answers keeps its place and its last values."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._queries: CardQueries[_Board] = CardQueries()
        self._known: dict[int, _Board] = {}  # by its NVML index
        self._links: tuple[tuple[str, ...], Links] = ((), {})  # of which boards

    def find(self) -> FoundDevices:
        """Look up all cards. Raises NVMLError where the driver cannot be asked."""
        count = int(self._nvml.module.nvmlDeviceGetCount())
        questions = {str(number): partial(self._board, number) for number in range(count)}
        answers = self._queries.ask(questions, _LATER_DEADLINE if self._known else _FIRST_DEADLINE)
        found: list[_Board | None] = []  # None for a card that is lost
        for number in range(count):
            answer = answers.get(str(number))
            if isinstance(answer, _Forbidden):
                continue
            if isinstance(answer, _Board):
                if not _tells_less(answer, self._known.get(number)):
                    self._known[number] = answer
            elif isinstance(answer, Exception) and not isinstance(answer, CardLost):
                raise answer
            found.append(self._known.get(number))
        # A lost card does not report its bus. It keeps its NVML index, so that the others are not renumbered:
        # NVML usually numbers by bus too, though that is not guaranteed.
        places = [place for place, board in enumerate(found) if board]
        boards = sorted((board for board in found if board), key=lambda board: board.bus)
        return FoundDevices(
            cards=tuple(_cards(dict(zip(places, boards, strict=True)))),
            boards={board.key: board.handle for board in boards},
            links=self._links_of([board for board in boards if not board.is_divided]),
            has_parts=any(board.is_divided for board in boards),
            is_complete=None not in found,
        )

    def _board(self, number: int) -> _Board:
        nvml = self._nvml
        try:
            handle = nvml.module.nvmlDeviceGetHandleByIndex(number)
        except nvml.module.NVMLError as error:
            if error.value == nvml.module.NVML_ERROR_NO_PERMISSION:
                raise _Forbidden from error
            raise CardLost from error
        bus = nvml.ask("nvmlDeviceGetPciInfo", handle)
        whole = self._piece(handle, nvml.text("nvmlDeviceGetName", handle))
        mode = nvml.ask("nvmlDeviceGetMigMode", handle)
        is_divided = bool(mode and mode[0])
        return _Board(
            handle=handle,
            key=whole.key,
            bus=_bus(bus) if bus else (0, 0, number),
            cpus=self._cpus(handle),
            pieces=tuple(self._parts(handle, whole.name)) if is_divided else (whole,),
            is_divided=is_divided,
            nvlinks=self._nvlinks(handle),
        )

    def _piece(self, handle: Any, name: str, part: int | None = None, instance: int | None = None) -> _Piece:
        key = self._nvml.text("nvmlDeviceGetUUID", handle)
        if not key:  # without it the card cannot be leased
            raise CardLost
        memory = self._nvml.memory(handle)
        total = memory.total - getattr(memory, "reserved", 0) if memory else None
        return _Piece(handle=handle, key=key, name=name, memory_total=total, part=part, instance=instance)

    # -- parts of a card -------------------------------------------------------------------------------

    def _parts(self, board: Any, name: str) -> Iterator[_Piece]:
        for number in range(int(self._nvml.ask("nvmlDeviceGetMaxMigDeviceCount", board) or 0)):
            handle = self._nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", board, number)
            if handle is not None:  # not every possible part exists
                instance = self._nvml.ask("nvmlDeviceGetGpuInstanceId", handle)
                yield self._piece(handle, self._name_of_part(handle, name), number, instance)

    def _name_of_part(self, handle: Any, board: str) -> str:
        """`NVIDIA H200 MIG 1g.18gb`; drivers differ in how much of this they report."""
        told = self._nvml.text("nvmlDeviceGetName", handle)
        if "MIG" in told:
            return told if told.startswith(board) else f"{board} {told}"
        size = self._nvml.ask("nvmlDeviceGetAttributes", handle)
        if size is None:
            return f"{board} MIG"
        slices, own = size.gpuInstanceSliceCount, size.computeInstanceSliceCount
        narrow = f"{own}c." if own != slices else ""
        return f"{board} MIG {narrow}{slices}g.{round(size.memorySizeMB / 1024)}gb"

    # -- CPUs and links --------------------------------------------------------------------------------

    def _cpus(self, handle: Any) -> tuple[int, ...]:
        words = os.sysconf("SC_NPROCESSORS_CONF") // 64 + 1
        masks = self._nvml.ask("nvmlDeviceGetCpuAffinity", handle, words) or ()
        return tuple(64 * at + bit for at, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1)

    def _nvlinks(self, handle: Any) -> Mapping[_Bus, int]:
        """How many links lead to each bus address, which may be a card's or a switch's."""
        found: Counter[_Bus] = Counter()
        for link in range(_MOST_NVLINKS):
            state = self._nvml.ask("nvmlDeviceGetNvLinkState", handle, link)
            if state is None:
                break
            if state and (remote := self._nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)):
                found[_bus(remote)] += 1
        return found

    def _links_of(self, boards: Sequence[_Board]) -> Links:
        """How well each pair of boards is connected. Asked once: it does not change while the machine runs."""
        keys = tuple(board.key for board in boards)
        if self._links[0] != keys:
            pairs = [(one, other) for at, one in enumerate(boards) for other in boards[at + 1 :]]
            buses = {board.bus for board in boards}
            links = {}
            for one, other in pairs:
                quality = _over_nvlink(one, other, buses) or self._over_pci(one, other)
                if quality is not None:
                    links[min(one.key, other.key), max(one.key, other.key)] = quality
            self._links = keys, links
        return self._links[1]

    def _over_pci(self, one: _Board, other: _Board) -> int | None:
        try:
            level = self._nvml.ask("nvmlDeviceGetTopologyCommonAncestor", one.handle, other.handle)
        except CardLost:
            return None
        return None if level is None else _OVER_PCI - int(level)


class _Forbidden(Exception):
    """Access to this card is denied, for instance by a cgroup of Slurm. CUDA does not number it, nor do we."""


def _tells_less(board: _Board, before: _Board | None) -> bool:
    """Whether the same card no longer reports its memory: it is failing."""
    if before is None or before.key != board.key:
        return False
    return _sizes_are_known(before) and not _sizes_are_known(board)


def _sizes_are_known(board: _Board) -> bool:
    return all(piece.memory_total is not None for piece in board.pieces)


def _cards(boards: Mapping[int, _Board]) -> Iterator[FoundCard]:
    # Next to divided cards CUDA's numbers of the whole ones are undefined; their UUIDs work.
    needs_address = any(board.is_divided for board in boards.values())
    for index, board in boards.items():
        for piece in board.pieces:
            yield FoundCard(
                handle=piece.handle,
                gpu=Gpu(
                    key=piece.key,
                    index=index,
                    part=piece.part,
                    name=piece.name,
                    memory_total=piece.memory_total,
                    cpus=board.cpus,
                    address=piece.key if needs_address else "",
                ),
                board=board.key,
                instance=piece.instance,
            )


def _over_nvlink(one: _Board, other: _Board, cards: set[_Bus]) -> int | None:
    """Links from card to card, or to switches, which connect all cards that have links to one."""
    direct = one.nvlinks.get(other.bus, 0)
    to_switches = min(
        sum(count for bus, count in board.nvlinks.items() if bus not in cards) for board in (one, other)
    )
    links = direct or to_switches
    return _OVER_NVLINK + links if links else None


def _bus(pci: Any) -> _Bus:
    return pci.domain, pci.bus, pci.device
