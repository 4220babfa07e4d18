"""GPUs read from a file, for tests and for trying dibs without a GPU."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from dibs.gpus.card_reader import CardReader
from dibs.gpus.probe import ProbeFailed, require_distinct, utc_now
from dibs.model.gpus import CardState, Gpu, GpuFault, GpuProcess, GpuReading, Links, Reading


class FakeProbe:
    """Reads the file again at every read, so that a test can change the machine under a running dibs.

    The file is a list of cards. `index` and `uuid` must be there, what is left out is unknown:

        [{"index": 0, "uuid": "GPU-3f2a...", "name": "NVIDIA H200", "memory_total": 150754820096,
          "memory_used": 0, "load": 0, "temperature": 31, "power": 76.5, "energy": 4215.0, "ecc_uncorrected": 0,
          "part": null, "address": "", "cpus": [0, 1, 2, 3], "state": "ok", "hang_seconds": 0,
          "processes": [{"pid": 4242, "user": "ann", "memory": 1024, "kind": "compute", "name": "python"}]}]

    Sizes are bytes, load is percent, temperature degrees Celsius, power watts, energy joules. `state` is `ok`,
    `stale` or `lost`; a card that hangs becomes stale and lost by itself, as a real one would. To
    describe more of the machine, wrap the list:

        {"gpus": [...], "driver": "NVIDIA 580.1", "hang_seconds": 600, "fail": "the driver is on fire",
         "links": [["GPU-3f2a...", "GPU-77b1...", 18]],
         "faults": [{"gpu": "GPU-3f2a...", "xid": 79, "message": "GPU has fallen off the bus", "id": 1}]}

    A fault is reported once, by the first reading that finds it in the file. To let it happen again, give it
    another `id`, or write it twice. A process counts as foreign only while its pid is alive: use the pid of a
    real process.
    """

    def __init__(self, path: str, *, now: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._now = now
        self._reader = CardReader()
        self._reported: Counter[str] = Counter()  # faults, as in the file

    def read(self, *, energy: bool = False) -> Reading:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
            world = content if isinstance(content, dict) else {"gpus": content}
            cards = sorted(((_card(card), card) for card in world.get("gpus", [])), key=lambda one: _place(one[0]))
            links = _links(world.get("links", []))
            faults = self._new_faults(world.get("faults", []))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProbeFailed(
                f"cannot read the fake GPUs in {self._path}: {error!r}",
                remedy="DIBS_PROBE names a JSON file; dibs/gpus/fake.py describes it",
            ) from error
        time.sleep(world.get("hang_seconds", 0))
        if "fail" in world:
            raise ProbeFailed(f"cannot ask the fake driver: {world['fail']}")
        require_distinct(seen.gpu for seen, _ in cards)
        return Reading(
            at=self._now(),
            gpus=self._reader.read(
                [(seen.gpu, partial(_answer, seen, card.get("hang_seconds", 0))) for seen, card in cards]
            ),
            driver=world.get("driver", "fake"),
            faults=faults,
            links=links,
        )

    def _new_faults(self, listed: list[dict[str, Any]]) -> tuple[GpuFault, ...]:
        listed_now = Counter(json.dumps(fault, sort_keys=True) for fault in listed)
        new, self._reported = listed_now - self._reported, listed_now
        return tuple(
            GpuFault(fault["gpu"], fault.get("xid"), fault.get("message", ""))
            for fault in map(json.loads, new.elements())
        )


def _answer(seen: GpuReading, hang_seconds: float) -> GpuReading:
    time.sleep(hang_seconds)
    return seen


def _place(seen: GpuReading) -> tuple[int, int]:
    return seen.gpu.index, seen.gpu.part or 0


def _card(card: Mapping[str, Any]) -> GpuReading:
    return GpuReading(
        gpu=Gpu(
            key=card["uuid"],
            index=int(card["index"]),
            part=card.get("part"),
            name=card.get("name", ""),
            memory_total=card.get("memory_total"),
            cpus=tuple(card.get("cpus", ())),
            address=card.get("address", ""),
        ),
        memory_used=card.get("memory_used"),
        load=card.get("load"),
        temperature=card.get("temperature"),
        power=card.get("power"),
        energy=card.get("energy"),
        ecc_uncorrected=card.get("ecc_uncorrected"),
        processes=tuple(_process(process) for process in card.get("processes", [])),
        state=CardState(card.get("state", "ok")),
    )


def _process(process: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(
        pid=int(process["pid"]),
        user=process.get("user"),
        memory=process.get("memory"),
        kind=process.get("kind", "compute"),
        name=process.get("name", ""),
        load=process.get("load"),
    )


def _links(listed: list[list[Any]]) -> Links:
    return {(min(one, other), max(one, other)): int(quality) for one, other, quality in listed}
