"""The cards of a container: how they are named to an engine, and what the variables inside say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dibs.containers.engines import CardAccess, ContainerHost, cannot_give_cards
from dibs.model.gpus import Claim, gpu_environment

AMD_DEVICES = ("/dev/kfd", "/dev/dri")
_SET_UP_CDI = "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` sets up CDI"
_CDI_KIND = "nvidia.com/gpu"


def are_amd(claims: Sequence[Claim]) -> bool:
    return any(claim.gpu.startswith("AMD-") for claim in claims)


def are_nvidia(claims: Sequence[Claim]) -> bool:
    """Whether the driver showed them. A card that was only declared may be of any kind, or none."""
    return any(claim.gpu.startswith(("GPU-", "MIG-")) for claim in claims)


def once_each(claims: Sequence[Claim]) -> list[Claim]:
    """A card of which a job has two shares is one card."""
    return list({claim.gpu: claim for claim in claims}.values())


def by_cdi(claims: Sequence[Claim], host: ContainerHost) -> CardAccess | None:
    """`--device nvidia.com/gpu=UUID` for each; None where a CDI file does not name them all."""
    options: list[str] = []
    for claim in once_each(claims):
        names = (claim.gpu, claim.number)
        found = next((name for name in names if name in host.cdi_devices), None)
        if found is None:
            return None
        options += ["--device", f"{_CDI_KIND}={found}"]
    return CardAccess(tuple(options), is_counted_anew=True)


def amd_devices(claims: Sequence[Claim]) -> CardAccess:
    """All of AMD's device files: ROCR_VISIBLE_DEVICES hides the cards that are not the job's."""
    return CardAccess(tuple(word for path in AMD_DEVICES for word in ("--device", path)))


def without_cdi(engine: str, claims: Sequence[Claim]) -> CardAccess:
    """No access at all, which is enough for cards that were only declared; BadInput for NVIDIA's."""
    if are_nvidia(claims):
        raise cannot_give_cards(engine, "CDI is not set up for all of them", _SET_UP_CDI)
    return CardAccess()


def check_rights(engine: str, claims: Sequence[Claim], host: ContainerHost) -> None:
    """Refuse an engine without root where this user may not open the device files: it could not either."""
    if claims and host.closed_devices:
        why = f"it runs without root, and you may not open {host.closed_devices[0]}"
        raise cannot_give_cards(engine, why, "ask for the group of that file (`ls -l` shows it)")


def variables_inside(claims: Sequence[Claim], access: CardAccess) -> Mapping[str, str]:
    """The variables that name the cards in the container: as the program counts them there.

    DIBS_GPUS keeps the numbers of this machine, by which `dibs gpus` knows them.
    """
    outside = gpu_environment(claims)
    if not access.is_counted_anew:
        return outside
    places = {claim.gpu: place for place, claim in enumerate(sorted(once_each(claims), key=lambda one: one.index))}
    inside = gpu_environment([replace(claim, index=places[claim.gpu], address="") for claim in claims])
    return {**inside, "DIBS_GPUS": outside["DIBS_GPUS"]}
