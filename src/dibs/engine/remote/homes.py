"""Where attempts that other systems run have their folders, under this setting and earlier ones."""

import os
from dataclasses import dataclass

from dibs.engine.launch.place import Place
from dibs.model.jobs import Attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Homes:
    """The places of one queue. Other queues may have theirs beside them, and each of those has a job 1."""

    here: Place  # the queue's own; attempts of other systems may be there as well
    now: tuple[Place, ...]  # where new ones come, if not here
    earlier: tuple[Place, ...]  # of earlier settings
    mark: str  # a folder of this name is this queue's, wherever it is

    @property
    def elsewhere(self) -> tuple[Place, ...]:
        """All but the queue's own."""
        return (*self.now, *self.earlier)

    def of(self, attempt: Attempt) -> list[Place]:
        """Those that are not here and in which an attempt may have left something.

        Where it was recorded, whatever is set by now; and where its folder would be today, because somebody may
        have moved all of them. What is recorded is believed only where it is a place of this queue.
        """
        found = {place.root: place for place in self.now}
        recorded = self.here.home_of(attempt)
        if recorded is not None and self._has(recorded):
            found[recorded.root] = recorded
        found.pop(self.here.root, None)
        return list(found.values())

    def _has(self, place: Place) -> bool:
        is_known = place.root in {one.root for one in self.elsewhere}
        return is_known or os.path.basename(place.root) == self.mark
