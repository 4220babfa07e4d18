"""Finds in the end of a log why a command failed.

Only explicit messages count, and only if they ended the command: a wrong guess would repeat a job for nothing, or
mislead its owner. The shim uses this too, so this file imports only `re`; the names are those of
`model.jobs.Cause`.
"""

import re

TAIL = 16 * 1024  # bytes of a log that are searched; earlier output is too old to be the reason
EARLY = 30.0  # seconds; a later import or syntax error is not one of the environment

_LONGEST_LINE = 300
_LAST_LINES = 6  # of a program that is not Python: after more lines the error did not end it
_MOST_AFTER = 40  # lines after the error that ended it, of processes that clean up
_MOST_WRAPPERS = 8  # tracebacks that only pass on another process's error

_GPU_OOM = re.compile(
    # PyTorch, CuPy, ONNX Runtime, llama.cpp, and programs that show the runtime's message
    rb"\b(?:CUDA|HIP|cu(?:da|blas|dnn)\w*|hip\w*)\b[^\n]{0,60}?out of memory"
    rb"|\btorch\.(?:cuda\.)?OutOfMemoryError"
    rb"|\bcupy[\w.]*\.OutOfMemoryError"
    rb"|\bCUDA_ERROR_OUT_OF_MEMORY|\b(?:cuda|hip)ErrorMemoryAllocation|\bhipErrorOutOfMemory"
    rb"|\bCU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
    # TensorFlow; it uses the same error for a full disk, too many files and host memory
    rb"|\b(?:ResourceExhaustedError|OOM when allocating)"
    rb"(?![^\n]*(?:No space left|Too many open files|device:CPU))"
    # JAX; gRPC uses the same word for quotas
    rb"|\b(?:Xla|Jax)RuntimeError: RESOURCE_EXHAUSTED"
    rb"|\bRESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
    re.IGNORECASE,
)
# Not the errors of a wrong program on a working card (illegal instruction, unspecified launch failure).
_GPU_FAULT = re.compile(
    rb"uncorrectable (?:ECC|NVLink) error"
    rb"|\bCUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE"
    rb"|\bcudaError(?:ECC|Nvlink)Uncorrectable"
    rb"|\bGPU is lost\b|\bNVML_ERROR_GPU_IS_LOST"
    rb"|\bhas fallen off the bus"
    rb"|\bCUDA error: device is lost",
    re.IGNORECASE,
)
_DISK_FULL = re.compile(rb"\bNo space left on device|\bENOSPC\b|\bDisk quota exceeded|\bEDQUOT\b", re.IGNORECASE)
_PORT_IN_USE = re.compile(
    rb"\bAddress already in use|\bEADDRINUSE\b|server socket has failed to listen|could not bind to port \d",
    re.IGNORECASE,
)
_NO_LIBRARY = rb"\.so\S*: cannot open shared object file"
_IMPORT_ERROR = re.compile(rb"(?:[\w.]+\.)?(?:ModuleNotFoundError|ImportError)\b|OSError: .*" + _NO_LIBRARY)
_SYNTAX_ERROR = re.compile(rb"(?:SyntaxError|IndentationError|TabError): ")
# The same without a traceback: from python -m, the program loader, and the shells.
_NO_MODULE = re.compile(
    rb"\bpython[\w.]*: (?:No module named |Error while finding module)"
    rb"|\berror while loading shared libraries: \S*" + _NO_LIBRARY
)
_SHELL_SYNTAX = re.compile(
    rb"\d: (?:syntax error near unexpected token|syntax error: unexpected end of file|Syntax error: "
    rb"|unexpected EOF while looking for|parse error near)"
)
_KILLED = re.compile(rb"\bKilled\b|\bSIGKILL\b|\bsignal:? 9\b|\bexitcode\s*:\s*-9\b")

_PREFIX = re.compile(rb"(?:\[[\w,. /-]{1,40}\](?:<std(?:err|out)>)?:? ?|\([\w=. ,/-]{1,60}\) )")  # of a rank
_HEADING = b"Traceback (most recent call last)"
_FRAME = re.compile(rb'  File ".*", line \d')  # a syntax error has no heading
_INSIDE = (b" ", b"\t", b"\xe2\x94", b"\xe2\x95", b"|", b"+")  # rich draws a box around it
# These do not end the program.
_HARMLESS = (b"Exception ignored in", b"Exception in thread", b"--- Logging error ---", b"Error in atexit")
_DIRECT = b"The above exception was the direct cause"
# These say only that another process failed, or another exception came first: that one names the reason.
_WRAPPER = re.compile(
    rb"[\w.]*(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|CalledProcessError"
    rb"|BrokenProcessPool|TerminatedWorkerError|JaxStackTraceBeforeTransformation|SimplifiedTraceback)\b"
    rb"|.*\b[Ss]ee (?:the )?root cause above|RuntimeError: DataLoader worker"
)


def cause_in(tail: bytes, seconds: float = 0.0, code: int | None = 1) -> tuple[str, str] | None:
    """The cause that the end of a log names and the line that names it; None where it names none.

    `seconds`: how long the command ran; a module missing after long is not an error of the environment. `code`:
    its exit code; None for a signal. A program with an exit code of its own caught the exception it shows.
    """
    if found := _GPU_FAULT.search(tail):  # never printed in passing
        return "gpu-fault", _line_around(tail, found.start())
    lines = [_PREFIX.sub(b"", line, count=1) if line[:1] in b"[(" else line for line in _lines(tail)]
    errors = _uncaught(lines) if code is None or code == 1 or code > 122 else []
    if not errors:
        return _last_words(tail, lines, seconds)
    for place in errors:
        if found_here := _named_by(lines, place, seconds):
            return found_here
    return None


def reports_kill(tail: bytes) -> bool:
    """Whether the end of a log says that one of the command's own processes was killed."""
    return _KILLED.search(tail) is not None


def _lines(tail: bytes) -> list[bytes]:
    """The lines; of a progress bar only its last state."""
    return [line.rstrip(b"\r").rpartition(b"\r")[2] for line in tail.split(b"\n")]


def _named_by(lines: list[bytes], place: int, seconds: float) -> tuple[str, str] | None:
    """The cause that the exception in this line names."""
    line = lines[place]
    if seconds <= EARLY and _IMPORT_ERROR.match(line):
        return "import-error", _shown(line)
    if seconds <= EARLY and _SYNTAX_ERROR.match(line) and _is_in_a_file(lines[:place]):
        return "syntax-error", _shown(line)
    if _PORT_IN_USE.search(line):
        return "port-in-use", _shown(line)
    if _DISK_FULL.search(line):
        return "disk-full", _shown(line)
    # TensorFlow's message goes on for many lines before it says so.
    for later in lines[place : place + _MOST_AFTER]:
        if _GPU_OOM.search(later):
            return "gpu-oom", _shown(later)
    return None


def _is_in_a_file(lines: list[bytes]) -> bool:
    """Whether the last frame is in a file: the argument of `eval` is data."""
    frame = next((line for line in reversed(lines[-8:]) if _FRAME.match(line)), b"")
    return bool(frame) and not frame.startswith(b'  File "<')


def _last_words(tail: bytes, lines: list[bytes], seconds: float) -> tuple[str, str] | None:
    """The cause in the last lines of a program that is not Python, or that ended itself."""
    recent = b"\n".join(tail.split(b"\n")[-_MOST_AFTER:])
    if found := _GPU_OOM.search(recent):
        return "gpu-oom", _line_around(recent, found.start())
    last = [line for line in lines if line.strip()][-_LAST_LINES:]
    for line in reversed(last):
        if seconds <= EARLY and _NO_MODULE.search(line):
            return "import-error", _shown(line)
        if seconds <= EARLY and _SHELL_SYNTAX.search(line):
            return "syntax-error", _shown(line)
        if _PORT_IN_USE.search(line):
            return "port-in-use", _shown(line)
        if _DISK_FULL.search(line):
            return "disk-full", _shown(line)
    return None


def _uncaught(lines: list[bytes]) -> list[int]:
    """The line of the last uncaught exception, then those of the exceptions that it only passes on."""
    ends = _tracebacks(lines)
    if not ends or len(lines) - ends[-1] > _MOST_AFTER:
        return []
    found: list[int] = []
    for number, end in enumerate(reversed(ends[-_MOST_WRAPPERS:])):
        found.append(end)
        place = len(ends) - 1 - number
        before = ends[place - 1] if place else end
        is_direct = any(line.startswith(_DIRECT) for line in lines[before:end])
        if not is_direct and not _WRAPPER.match(lines[end]):
            break
    return found


def _tracebacks(lines: list[bytes]) -> list[int]:
    """The lines that end a traceback and name its exception, without harmless ones."""
    ends = []
    is_inside = is_harmless = False
    for place, line in enumerate(lines):
        if _HEADING in line or (not is_inside and _FRAME.match(line)):
            is_inside = True
            is_harmless = place > 0 and lines[place - 1].startswith(_HARMLESS)
        elif is_inside and line.strip() and not line.startswith(_INSIDE):
            is_inside = False
            if not is_harmless:
                ends.append(place)
    return ends


def _shown(line: bytes) -> str:
    text = line[:_LONGEST_LINE].decode("utf-8", "replace").strip()
    return text if len(line) <= _LONGEST_LINE else f"{text[:-1]}…"


def _line_around(tail: bytes, place: int) -> str:
    start = max(tail.rfind(b"\n", 0, place) + 1, tail.rfind(b"\r", 0, place) + 1, place - _LONGEST_LINE // 2)
    return _shown(tail[start : start + _LONGEST_LINE + 1].splitlines()[0])
