"""Which last words name a cause, and which do not."""

from pathlib import Path

import pytest

from dibs.model.jobs import Cause
from dibs.policy.causes import EARLY, cause_in, reports_kill
from dibs.policy.outcomes import outcome_of

LOGS = sorted((Path(__file__).parents[1] / "data" / "logs").glob("*.txt"), key=lambda path: path.name)

GPU_OOM = [
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity)",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58",
    "[E:onnxruntime] CUDA failure 2: out of memory ; GPU=0 ; hostname=x ; expr=cudaMalloc((void**)&p, size);",
    "ggml_cuda_device_malloc: cudaMalloc failed: out of memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[9] on"
    " /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
    "could not allocate: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
]
GPU_FAULT = [
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "cudaErrorECCUncorrectable",
    "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.  Reboot the system to recover",
    "NVRM: GPU at PCI:0000:01:00: GPU has fallen off the bus.",
]
NEITHER = [
    "",
    "MemoryError",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: an illegal instruction was encountered",
    "RuntimeError: CUDA error: unspecified launch failure",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "grpc.RpcError: StatusCode.RESOURCE_EXHAUSTED: quota exceeded",
    "ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:x/device:CPU:0 by allocator cpu",
    "the parameter room is exhausted, out of memory of man",
]


@pytest.mark.parametrize("line", GPU_OOM)
def test_a_card_whose_memory_did_not_suffice(line):
    found = cause_in(f"Traceback:\n  File x\n{line}\n\nmore\n".encode())

    assert found == (Cause.GPU_OOM, line[:300])


@pytest.mark.parametrize("line", GPU_FAULT)
def test_a_card_that_failed(line):
    assert cause_in(f"Epoch 3\n{line}\n".encode()) == (Cause.GPU_FAULT, line)


@pytest.mark.parametrize("line", NEITHER)
def test_what_names_neither(line):
    assert cause_in(f"before\n{line}\nafter\n".encode()) is None


def test_a_broken_card_counts_more_than_a_full_one():
    assert cause_in(f"{GPU_OOM[0]}\n{GPU_FAULT[0]}\n".encode()) == (Cause.GPU_FAULT, GPU_FAULT[0])


def test_a_long_message_shows_that_it_was_cut():
    line = f"torch.OutOfMemoryError: CUDA out of memory. {'If reserved but unallocated memory is large ' * 9}"

    _, shown = cause_in(f"{line}\n".encode())

    assert shown == f"{line[:299]}…"


@pytest.mark.parametrize("around", [b"x " * 8000, b"progress 1 %\r" * 1000, b"\0\xff\xfe" * 500])
def test_a_line_without_an_end_is_quoted_in_part(around):
    cause, line = cause_in(around + b"CUDA out of memory" + around)

    assert cause == Cause.GPU_OOM
    assert "CUDA out of memory" in line and len(line) <= 300


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DataLoader worker (pid 12) is killed by signal: Killed.", True),
        ("traceback : Signal 9 (SIGKILL) received by PID 12", True),
        ("exitcode  : -9 (pid: 12)", True),
        ("Skilled workers", False),
        ("exit code 9", False),
    ],
)
def test_a_log_that_tells_of_a_kill(text, told):
    assert reports_kill(text.encode()) is told


def _log(path):
    """What the last words of a real log name: the cause and the line, empty where it names none; and the log."""
    told, _, log = path.read_text().partition("---\n")
    cause, line = told.split("\n")[:2]
    return cause, line, log.encode()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_the_last_words_of_a_program_name(path):
    cause, line, log = _log(path)

    found = cause_in(log)

    assert found == ((cause, line[:300]) if cause else None)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_was_said_long_before_the_end_names_nothing(path):
    cause, _, log = _log(path)

    found = cause_in(log + b"epoch 1: loss 0.3\n" * 200)

    assert found is None or found[0] == "gpu-fault" == cause  # no log mentions that in passing


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_module_that_is_missing_after_a_while_is_no_mistake_of_the_environment(path):
    cause, line, log = _log(path)

    found = cause_in(log, seconds=EARLY + 1)

    is_early = cause in ("import-error", "syntax-error")
    assert found == (None if is_early or not cause else (cause, line[:300]))


@pytest.mark.parametrize("name", ["python-no-module", "python-port", "python-disk", "python-syntax"])
def test_who_ends_with_a_code_of_its_own_has_caught_what_it_shows(name):
    _, _, log = _log(next(path for path in LOGS if path.stem == name))
    log += b"cannot go on\n" * 6

    assert cause_in(log, code=3) is None
    assert cause_in(log, code=1) is not None


@pytest.mark.parametrize("path", [path for path in LOGS if _log(path)[0]], ids=lambda path: path.stem)
def test_every_cause_that_a_shim_finds_is_one_that_we_know(path):
    cause, line, _ = _log(path)

    outcome = outcome_of({"state": "ended", "code": 1, "by": "", "cause": cause, "message": line})

    assert outcome.cause is Cause(cause)
