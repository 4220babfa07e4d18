"""Cards out of a file, for tests and for trying dibs without any."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from dibs.gpus.clock import utc_now
from dibs.gpus.probe import ProbeFailed, refuse_twins
from dibs.model.gpus import Gpu, GpuProcess, GpuReading, Reading


class FakeProbe:
    """Reads the file again at every read, so that a test can change the machine under a running dibs.

    The file is a list of cards. `index` and `uuid` must be there, what is left out is not known:

        [{"index": 0, "uuid": "GPU-3f2a...", "name": "NVIDIA H200", "memory_total": 150754820096,
          "memory_used": 0, "load": 0, "temperature": 31, "power": 76.5,
          "processes": [{"pid": 4242, "user": "ann", "memory": 1024, "kind": "compute", "name": "python"}]}]

    Sizes are bytes, load is percent, temperature degrees Celsius, power watts. To add faults, wrap the list:

        {"gpus": [...], "driver": "NVIDIA 580.1", "hang_seconds": 600, "fail": "the driver is on fire"}

    A process counts as foreign only while its pid is alive: give the pid of something real.
    """

    def __init__(self, path: str, *, now: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._now = now

    def read(self) -> Reading:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
            world = content if isinstance(content, dict) else {"gpus": content}
            cards = sorted((_card(card) for card in world.get("gpus", [])), key=lambda seen: seen.gpu.index)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProbeFailed(
                f"cannot read the fake GPUs in {self._path}: {error!r}",
                remedy="DIBS_PROBE names a JSON file; dibs/gpus/fake.py describes it",
            ) from error
        time.sleep(world.get("hang_seconds", 0))
        if "fail" in world:
            raise ProbeFailed(f"cannot ask the fake driver: {world['fail']}")
        refuse_twins(seen.gpu for seen in cards)
        return Reading(at=self._now(), gpus=tuple(cards), driver=world.get("driver", "fake"))


def _card(card: Mapping[str, Any]) -> GpuReading:
    return GpuReading(
        gpu=Gpu(
            key=card["uuid"],
            index=int(card["index"]),
            name=card.get("name", ""),
            memory_total=card.get("memory_total"),
        ),
        memory_used=card.get("memory_used"),
        load=card.get("load"),
        temperature=card.get("temperature"),
        power=card.get("power"),
        processes=tuple(_process(process) for process in card.get("processes", [])),
    )


def _process(process: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(
        pid=int(process["pid"]),
        user=process.get("user"),
        memory=process.get("memory"),
        kind=process.get("kind", "compute"),
        name=process.get("name", ""),
    )
