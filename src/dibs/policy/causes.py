"""Why a command failed, from the last words in its log.

Only what is said in so many words counts: a card that ran out of memory and a card that broke are tried again
elsewhere or later, and a wrong guess would repeat a job for nothing. The shim searches too, so this file imports
`re` alone; the names are those of `model.jobs.Cause`.
"""

import re

TAIL = 16 * 1024  # bytes of a log that are looked at: what stands before them is too old to be the reason

_LONGEST_LINE = 300

_GPU_OOM = re.compile(
    # PyTorch, CuPy, ONNX Runtime, llama.cpp, and whoever shows the runtime's own words
    rb"\b(?:CUDA|HIP|cu(?:da|blas|dnn)\w*|hip\w*)\b[^\n]{0,60}?out of memory"
    rb"|\btorch\.(?:cuda\.)?OutOfMemoryError"
    rb"|\bcupy[\w.]*\.OutOfMemoryError"
    rb"|\bCUDA_ERROR_OUT_OF_MEMORY|\b(?:cuda|hip)ErrorMemoryAllocation|\bhipErrorOutOfMemory"
    rb"|\bCU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
    # TensorFlow; it says the same of a full disk, of too many files and of the host's memory
    rb"|\b(?:ResourceExhaustedError|OOM when allocating)"
    rb"(?![^\n]*(?:No space left|Too many open files|device:CPU))"
    # JAX; gRPC has the same word for quotas
    rb"|\b(?:Xla|Jax)RuntimeError: RESOURCE_EXHAUSTED"
    rb"|\bRESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
    re.IGNORECASE,
)
# What a wrong program does to a healthy card (illegal instruction, unspecified launch failure) is not among them.
_GPU_FAULT = re.compile(
    rb"uncorrectable (?:ECC|NVLink) error"
    rb"|\bCUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE"
    rb"|\bcudaError(?:ECC|Nvlink)Uncorrectable"
    rb"|\bGPU is lost\b|\bNVML_ERROR_GPU_IS_LOST"
    rb"|\bhas fallen off the bus"
    rb"|\bCUDA error: device is lost",
    re.IGNORECASE,
)
_KILLED = re.compile(rb"\bKilled\b|\bSIGKILL\b|\bsignal:? 9\b|\bexitcode\s*:\s*-9\b")


def cause_in(tail: bytes) -> tuple[str, str] | None:
    """The cause that the end of a log names and the line that names it; None where it names none."""
    for cause, pattern in (("gpu-fault", _GPU_FAULT), ("gpu-oom", _GPU_OOM)):
        if found := pattern.search(tail):
            return cause, _line_around(tail, found.start())
    return None


def tells_of_a_kill(tail: bytes) -> bool:
    """Whether the end of a log says that one of the command's own processes was killed."""
    return _KILLED.search(tail) is not None


def _line_around(tail: bytes, place: int) -> str:
    start = max(tail.rfind(b"\n", 0, place) + 1, tail.rfind(b"\r", 0, place) + 1, place - _LONGEST_LINE // 2)
    line = tail[start : start + _LONGEST_LINE].splitlines()[0]
    return line.decode("utf-8", "replace").strip()
