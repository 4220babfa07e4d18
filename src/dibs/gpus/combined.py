"""A machine with cards of two makers."""

from collections.abc import Sequence
from dataclasses import replace

from dibs.gpus.probe import Probe, ProbeFailed
from dibs.model.gpus import CardState, Reading


class CombinedProbe:
    """Shows the cards of all its probes. The numbers of a later one follow those of the earlier ones.

    A maker whose driver fails loses its own cards only.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = tuple(probes)
        self._last: dict[int, Reading] = {}

    def read(self, *, energy: bool = False) -> Reading:
        readings = [self._read(at, energy) for at in range(len(self._probes))]
        first = 0
        shown = []
        for reading in readings:
            shown += [replace(seen, gpu=replace(seen.gpu, index=first + seen.gpu.index)) for seen in reading.gpus]
            first = 1 + max((seen.gpu.index for seen in shown), default=-1)
        return Reading(
            at=readings[0].at,
            gpus=tuple(shown),
            driver=", ".join(reading.driver for reading in readings if reading.driver),
            faults=tuple(fault for reading in readings for fault in reading.faults),
            links={pair: quality for reading in readings for pair, quality in reading.links.items()},
        )

    def _read(self, at: int, energy: bool) -> Reading:
        try:
            self._last[at] = self._probes[at].read(energy=energy)
            return self._last[at]
        except ProbeFailed:
            if at not in self._last:  # without its cards nobody knows the numbers of the next
                raise
            last = self._last[at]
            lost = tuple(replace(seen, energy=None, state=CardState.LOST) for seen in last.gpus)
            return replace(last, gpus=lost, faults=())
