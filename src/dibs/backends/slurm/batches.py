"""Which submissions go to Slurm together: clusters limit how many jobs there are, so arrays stay arrays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dibs.backends.protocol import AttemptRef, Submission, Wanted
from dibs.backends.slurm.names import JobName, split_key


@dataclass(frozen=True, slots=True)
class SlurmBatch:
    """What one call of sbatch submits: a job, or elements of an array by Slurm's task numbers."""

    name: JobName
    flags: tuple[str, ...]
    members: Mapping[int, Submission]
    most: int | None  # so many at once

    @property
    def refs(self) -> list[AttemptRef]:
        return [one.ref for one in self.members.values()]

    @property
    def wanted(self) -> Wanted:
        """What they are asked for: the same of each."""
        return next(iter(self.members.values())).wanted

    @property
    def is_array(self) -> bool:
        return len(self.members) > 1


def batches(wanted: Iterable[tuple[Submission, tuple[str, ...]]], *, largest_array: int) -> list[SlurmBatch]:
    """In the order given. Elements of one array that ask for the same go together, in blocks of numbers below
    `largest_array`; one that is left alone, such as a retry, is a job by itself."""
    groups: dict[tuple[str, int, int, bool, tuple[str, ...], int | None], dict[int, Submission]] = {}
    for one, flags in wanted:
        base, task = split_key(one.ref.key)
        block = 0 if task is None else task // largest_array * largest_array
        group = (base, one.ref.attempt, block, task is None, flags, one.wanted.most)
        groups.setdefault(group, {})[0 if task is None else task - block] = one
    found = []
    for (base, attempt, block, is_single, flags, most), members in groups.items():
        if len(members) > 1:
            name = JobName(base, attempt, offset=block)
        else:
            name = JobName(base, attempt, None if is_single else block + next(iter(members)))
        found.append(SlurmBatch(name, flags, members, most))
    return found
