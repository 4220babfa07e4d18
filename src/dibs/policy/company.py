"""Which cards one job of several GPUs may have side by side."""

from collections.abc import Iterable, Sequence

from dibs.model.gpus import Gpu
from dibs.model.jobs import Wishes
from dibs.policy.fitting import gpus_in_words, is_allowed, is_named, numbers_in_words


def company(gpus: Iterable[Gpu], wishes: Wishes) -> list[Gpu]:
    """Those that the job may have. Several GPUs are whole cards of one maker: no program could use others.

    Of two makers it is the one with more cards.
    """
    allowed = [gpu for gpu in gpus if is_allowed(gpu, wishes)]
    if wishes.num_gpus < 2:
        return allowed
    amd = [gpu for gpu in allowed if gpu.is_amd]
    others = [gpu for gpu in allowed if not gpu.is_amd and gpu.part is None]
    return amd if len(amd) > len(others) else others


def needs_care(gpus: Iterable[Gpu]) -> bool:
    """Whether there are cards that do not go with all others. Few machines have any."""
    return any(gpu.part is not None or gpu.is_amd for gpu in gpus)


def too_few(wishes: Wishes, allowed: Sequence[Gpu], pool: Sequence[Gpu]) -> str:
    """Why these are too few for the job."""
    if wishes.only:
        pool = [gpu for gpu in pool if is_named(gpu, wishes.only)]
    found = f"only {len(allowed)} may" if allowed else "none may"
    sentence = f"it wants {gpus_in_words(wishes)}, but {found} be used ({numbers_in_words(pool)})"
    left_out = [gpu for gpu in pool if is_allowed(gpu, wishes) and gpu not in allowed]
    if any(gpu.part is not None for gpu in left_out):
        return f"{sentence}: a program can use one part of a divided card, and nothing beside it"
    return f"{sentence}: a program can use cards of one maker only" if left_out else sentence
