"""What the owner of a loop gives an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.model.events import Event
from dibs.supervise.launcher import AddReader, RemoveReader

if TYPE_CHECKING:
    from dibs.engine.worker_thread import WorkerThread


@dataclass(frozen=True, slots=True)
class Hooks:
    """Ways back into the loop. `ask_for_turn` is called when the engine has something to do."""

    add_reader: AddReader
    remove_reader: RemoveReader
    announce: Callable[[Sequence[Event]], None]
    ask_for_turn: Callable[[], None]
    make_aside: "Callable[[], WorkerThread]"
