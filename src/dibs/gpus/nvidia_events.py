"""What NVIDIA's driver tells of its cards by itself: Xids, and memory errors that nobody can correct."""

from collections.abc import Iterable, Mapping
from typing import Any

from dibs.gpus.each import CardLost
from dibs.gpus.nvidia_find import FoundCard
from dibs.gpus.nvml import Nvml
from dibs.model.gpus import GpuFault

_DOUBLE_BIT = 0x2
_XID = 0x8
_MOST = 100  # of one pass: a sick card may tell without end


class Events:
    """Listens to the boards. What happened before it began to listen is not told."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._listens_to: set[str] = set()

    def listen(self, boards: Mapping[str, Any]) -> None:
        """To these boards as well, by UUID."""
        new = {key: handle for key, handle in boards.items() if key not in self._listens_to}
        if not new:
            return
        if self._set is None:
            self._set = self._nvml.ask("nvmlEventSetCreate")
        if self._set is None:
            return
        for key, handle in new.items():
            try:
                told = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
                if wanted := told & (_XID | _DOUBLE_BIT):
                    self._nvml.ask("nvmlDeviceRegisterEvents", handle, wanted, self._set)
                self._listens_to.add(key)
            except CardLost:
                continue  # it is tried again when the cards are looked for again

    def take(self, cards: Iterable[FoundCard]) -> list[GpuFault]:
        """What came since the last time, at once."""
        if self._set is None:
            return []
        faults: list[GpuFault] = []
        for _ in range(_MOST):
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", self._set, 0)
            except CardLost:  # a lost card ends every wait: the others are listened to through another set
                self._begin_anew()
                break
            if event is None:  # nothing more: it says so by a time-out
                break
            faults += self._faults(event, cards)
        return faults

    def _begin_anew(self) -> None:
        self._nvml.ask("nvmlEventSetFree", self._set)
        self._set = None
        self._listens_to.clear()

    def _faults(self, event: Any, cards: Iterable[FoundCard]) -> list[GpuFault]:
        """One for the card, or for each of its parts that is meant."""
        try:
            board = self._nvml.text("nvmlDeviceGetUUID", event.device)
        except CardLost:
            return []
        of_board = [card for card in cards if card.board == board]
        meant = [card for card in of_board if card.instance == getattr(event, "gpuInstanceId", None)] or of_board
        if event.eventType == _XID:
            xid, message = int(event.eventData), f"Xid {int(event.eventData)}"
        else:
            xid, message = None, "a memory error that cannot be corrected"
        return [GpuFault(card.gpu.key, xid, message) for card in meant]
