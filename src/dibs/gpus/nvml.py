"""Calls to NVML, whatever the age of the driver and of the binding."""

from typing import Any

from dibs.gpus.each import CardLost


class Nvml:
    """The module `pynvml`, which costs 25 ms to import, with one way of not knowing."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def ask(self, call: str, *arguments: Any) -> Any:
        """One call; None where the card, the driver or the binding cannot answer it.

        Raises CardLost where the card is gone.
        """
        module = self.module
        function = getattr(module, call, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except module.NVMLError as error:
            if error.value in (module.NVML_ERROR_GPU_IS_LOST, module.NVML_ERROR_RESET_REQUIRED):
                raise CardLost from error
            return None
        except module.NVMLLibraryMismatchError:  # the driver is older than the binding; not an NVMLError
            return None

    def text(self, call: str, *arguments: Any) -> str:
        """The same for words; empty where there is no answer. Older bindings answer in bytes."""
        answer = self.ask(call, *arguments)
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer or "")

    def memory(self, handle: Any) -> Any:
        """The second version keeps apart what the driver reserved for itself; no job can have that."""
        second = getattr(self.module, "nvmlMemory_v2", None)
        with_reserved = self.ask("nvmlDeviceGetMemoryInfo", handle, second) if second else None
        return with_reserved or self.ask("nvmlDeviceGetMemoryInfo", handle)
