"""A hold on a share of a GPU, and the variables by which a job knows what it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An attempt's hold on a share of a GPU."""

    gpu: str  # the card's key
    index: int
    share: Fraction
    vram: int = 0  # bytes


def gpu_environment(claims: Sequence[Claim]) -> Mapping[str, str]:
    """The variables by which a job knows its GPUs. A job for no GPU gets an empty list.

    Integers in PCI order: several frameworks crash on UUIDs.
    """
    indices = [str(claim.index) for claim in claims]
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(indices),
        "GPU": ",".join(f"cuda{index}" for index in indices),
        "DIBS_GPUS": ",".join(indices),
    }
