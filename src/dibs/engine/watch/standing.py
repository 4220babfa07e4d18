"""What a GPU is to somebody who looks at it: its state, the reason, and what can be done about it."""

from dataclasses import dataclass

from dibs.engine.watch.survey import GpuUse

TROUBLES = ("stale", "lost", "missing", "silent", "drained", "quarantined")  # of which a person wants to know more


@dataclass(frozen=True, slots=True)
class Standing:
    """One word, and sentences for people; they are empty where there is nothing to explain."""

    state: str
    why: str = ""
    remedy: str = ""


def standing(
    use: GpuUse, mark: str = "", why_marked: str = "", prospect: str = "", *, silent: str = ""
) -> Standing:
    """`mark` is what the queue made of the card, `prospect` how it comes back where more than that is known.

    `silent` is why the driver could not be asked.
    """
    label = use.number or use.key
    if mark:
        return Standing(mark, why_marked, prospect or f"`dibs gpus undrain {label}` uses it again")
    if silent:
        return Standing("silent", silent, _ASK_THE_DRIVER)
    if use.state == "stale":
        return Standing("stale", "it does not answer; what is shown was seen before", _ASK_THE_DRIVER)
    if use.state == "lost":
        reset = "a reset of the card or a restart of the machine may bring it back"
        return Standing("lost", "it does not answer any more; what is shown was seen before", reset)
    if use.state == "missing":
        return Standing("missing", "the driver does not show it any more", _ASK_THE_DRIVER)
    if use.state == "busy":
        names = "; ".join(process.shown for process in use.foreign[:3])
        return Standing("busy", f"used without a lease ({names})", "it is used when these processes have ended")
    return Standing(use.state)


_ASK_THE_DRIVER = "`nvidia-smi` or `amd-smi` and `dmesg` may tell more"
