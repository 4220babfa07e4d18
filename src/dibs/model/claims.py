"""A hold on a share of a GPU, and the environment variables that name the GPUs to the job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.model.units import show_gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An attempt's hold on a share of a GPU."""

    gpu: str  # the card's key
    index: int
    share: Fraction
    vram: int = 0  # bytes
    address: str = ""  # Gpu.address
    part: int | None = None  # Gpu.part

    @property
    def number(self) -> str:
        """As people write it: `0`, or `0:1` for a part."""
        return show_gpu(self.index, self.part)


GPU_VARIABLES = frozenset(
    (
        *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("GPU", "DIBS_GPUS"),
    )
)


def gpu_environment(claims: Sequence[Claim]) -> Mapping[str, str]:
    """The variables that name its GPUs to a job. A job without a GPU gets an empty list.

    Integers in PCI order: several frameworks crash on UUIDs. A part of a card has no other name.
    """
    names = [claim.gpu if claim.gpu.startswith("MIG-") else str(claim.index) for claim in claims]
    ours = {
        "GPU": ",".join(name if name.startswith("MIG-") else f"cuda{name}" for name in names),
        "DIBS_GPUS": ",".join(names),
    }
    if claims and claims[0].gpu.startswith("AMD-"):
        return {**_amd_environment(claims), **ours}
    addresses = [claim.address or name for claim, name in zip(claims, names, strict=True)]
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(addresses), **ours}
    return environment if claims else {**environment, "ROCR_VISIBLE_DEVICES": ""}


def _amd_environment(claims: Sequence[Claim]) -> Mapping[str, str]:
    """ROCm's lowest layer hides the cards that are not the job's, for every program above it.

    HIP then counts what is left from 0, and takes CUDA's variable for its own where its own is missing: both
    say so, or one that was inherited would pick from the wrong cards. A card that is divided has an address of
    several numbers, one for each part.
    """
    addresses = ",".join(claim.address or str(claim.index) for claim in claims)
    places = ",".join(str(place) for place in range(addresses.count(",") + 1))
    return {
        "ROCR_VISIBLE_DEVICES": addresses,
        "HIP_VISIBLE_DEVICES": places,
        "CUDA_VISIBLE_DEVICES": places,
    }
