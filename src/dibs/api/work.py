"""The job's side of a call: `python work.py --NAME FOLDER` runs the call in the folder.

Run by its path, maybe in another interpreter: it uses only the standard library, and no syntax that an older
Python cannot parse, so that it can report that the version differs.
"""

import sys

if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]  # the folder of this file, which has no modules of the user

import json
import os

TYPE_CHECKING = False
_IS_FORKED = globals().get("_IS_FORKED", False)  # set by a warm process (supervise/warm/job.py)
if TYPE_CHECKING:
    from typing import Any

CALL = "call"  # a line of JSON, then the pickled function and its arguments
# On the hosts of `dibs cluster up`: what it brings along, for an interpreter that has no other.
_CARRIED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "carried")
_NO_CLOUDPICKLE = (
    "cannot read {0} in its job: {1} on {2} has no cloudpickle - `{1} -m pip install cloudpickle` there, "
    "or `dibs cluster up` where it is installed"
)


def main(folder: str) -> int:
    try:
        with open(folder + "/" + CALL, "rb") as file:
            head = json.loads(file.readline())
            data = file.read()
    except FileNotFoundError:
        sys.stderr.write(
            "dibs: the function of this job is gone: its result was collected, or was not collected for days\n"
        )
        return 1
    ours = [sys.version_info[0], sys.version_info[1]]
    if ours != head["python"]:
        return _refuse(
            folder,
            "the job runs Python {}.{}, but the function comes from {}.{}".format(*ours, *head["python"]),
        )
    # The search path of the submitting process, so that the same modules are found.
    sys.path[:] = head["path"] + [place for place in sys.path if place not in head["path"]]
    if os.path.isdir(_CARRIED):
        sys.path.append(_CARRIED)
    sys.argv[:] = [head["name"]]
    try:
        function, words, named = _loaded(data, head.get("main", ""))
        if head["function"]:
            function = _named(head["function"])
    except BaseException as error:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "cloudpickle":
            return _refuse(folder, _NO_CLOUDPICKLE.format(head["name"], sys.executable, os.uname().nodename))
        _show(error)
        return _refuse(folder, f"cannot read {head['name']} in its job: {_told(error)}", error)
    if head["is_runner"]:
        return _status(function(*words, **named))
    try:
        if head.get("is_chunk"):
            value = [function(*each) for each in words]
        else:
            value = function(*words, **named)
    except SystemExit:
        raise  # ends the job with this status
    except BaseException as error:
        _show(error)
        return _fail(folder, error)
    return _give_back(folder, value, head["name"])


def _loaded(data: bytes, script: str) -> "tuple[Any, Any, Any]":
    """The call, with the functions and classes of the user's script in `__main__`, as in that script.

    A function may send them on, as to a `multiprocessing.Pool`: they are found by their names there. Spawned
    processes import the script itself, as those of the script would.
    """
    import io
    import pickle
    import types

    made = []

    def recording(make: "Any") -> "Any":
        def record(*words: "Any", **named: "Any") -> "Any":
            made.append(make(*words, **named))
            return made[-1]

        return record

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> "Any":
            found = super().find_class(module, name)
            is_maker = module.startswith("cloudpickle.") and name.startswith("_make_")
            return recording(found) if is_maker or name == "_lru_cache_wrapper" else found

    call: tuple[Any, Any, Any] = Unpickler(io.BytesIO(data)).load()
    main = types.ModuleType("__main__")
    if script:
        main.__file__ = script
    for one in made:
        name = getattr(one, "__qualname__", "")
        if getattr(one, "__module__", "") == "__main__" and name and "." not in name:
            setattr(main, name, one)
    main.__dict__["_dibs"] = sys.modules["__main__"]  # this file, which is needed until the end
    sys.modules["__main__"] = main
    return call


def result_path(folder: str, attempt: object) -> str:
    """One for each attempt: a killed attempt must not return the result of an earlier one."""
    return f"{folder}/result-{attempt}"


def _give_back(folder: str, value: object, name: str) -> int:
    try:
        data = _pickled(value)
    except BaseException as error:
        _show(error)
        kind = type(value).__name__
        return _refuse(folder, f"cannot give back what {name} returned ({kind}): {_told(error)}")
    _write(folder, {"kind": "value"}, data)
    return 0


def _fail(folder: str, error: BaseException) -> int:
    import pickle

    head = {"kind": "error", "message": _told(error), "traceback": _traceback(error)}
    try:
        data = _pickled(error)
        pickle.loads(data)  # many exceptions can be pickled but not unpickled
    except BaseException:
        data = b""
    _write(folder, head, data)
    return 1


def _refuse(folder: str, message: str, error: "BaseException | None" = None) -> int:
    sys.stderr.write(f"dibs: {message}\n")
    traceback = "" if error is None else _traceback(error)
    _write(folder, {"kind": "refused", "message": message, "traceback": traceback}, b"")
    return 1


def _write(folder: str, head: object, data: bytes) -> None:
    path = result_path(folder, os.environ.get("DIBS_ATTEMPT", "1"))
    with open(path + ".new", "wb") as file:
        file.write(json.dumps(head).encode("ascii") + b"\n" + data)
        file.flush()
        os.fsync(file.fileno())
    # Rename, not write: a reader must see the whole file or none of it.
    os.rename(path + ".new", path)


def _pickled(value: object) -> bytes:
    try:
        import cloudpickle as pickle
    except ImportError:
        import pickle
    return bytes(pickle.dumps(value))


def _named(text: str) -> object:
    from importlib import import_module

    module, _, name = text.partition(":")
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _status(value: object) -> int:
    """The return value of a runner as the job's exit code."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF if value >= 0 else 128 + -value  # subprocess returns -15 for signal 15
    sys.stderr.write(f"dibs: the runner returned {value!r:.60}, and an exit code is a number\n")
    return 1


def _told(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[-1]


def _traceback(error: BaseException) -> str:
    """The traceback from the function on, without the frames of this file."""
    import traceback

    place = error.__traceback__
    inner = place.tb_next if place is not None else None
    return "".join(traceback.format_exception(type(error), error, inner or place))


def _show(error: BaseException) -> None:
    sys.stderr.write(_traceback(error))


def _end(status: int) -> None:
    """End as the processes of multiprocessing do, after threads and exit handlers, and with all files flushed.

    An interpreter that was forked warm would take apart the modules that it shares, and so copy all their memory:
    a quarter of a second in each job.
    """
    import atexit
    import gc
    import threading
    from _io import _IOBase  # of all files; whether it is an `io.IOBase`, an abstract class, takes long to ask

    if not _IS_FORKED:
        sys.exit(status)
    with_own = gc.get_objects()  # less those of the warm process
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as every end of Python does
        atexit._run_exitfuncs()
    finally:
        for one in with_own:
            if isinstance(one, _IOBase) and not one.closed:
                try:
                    one.flush()
                except Exception as error:
                    sys.stderr.write(f"dibs: cannot flush {one!r:.100}: {error!r}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _end(main(sys.argv[-1]))
