"""Where a warm process takes hold of the job's interpreter: the last step of its start, before it runs anything.

Old interpreters read this file too: nothing here may be newer than they are. Whatever we import is hidden again,
so that the job imports its own, from its own folders. What follows after the last line is a job, and Python runs
it as it runs every program: no frame of ours is below it.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def _take_hold():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.path_importer_cache.pop(here, None)
    channel, order = map(int, os.environ.pop("DIBS_WARM").split())
    path = os.environ.pop("PYTHONPATH").split(":", 1)
    if len(path) > 1:
        os.environ["PYTHONPATH"] = path[1]
    if sys.version_info < (3, 11):  # noqa: UP036
        version = ".".join(map(str, sys.version_info[:2]))
        os.write(channel, ("no its Python is " + version + ", and a warm start needs 3.11").encode())
        os._exit(0)
    process = _load(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here)))))
    _customize(channel, process)
    process.main(channel, order)


def _load(root):
    """Our own modules, from our own folder and the standard library alone."""
    path, before = sys.path[:], set(sys.modules)
    library = os.path.dirname(os.__file__)
    sys.path[:] = [library, os.path.join(library, "lib-dynload"), root]
    try:
        from dibs.supervise.warm import process
    finally:
        sys.path[:] = path
        sys.path_importer_cache.pop(root, None)
        for name in set(sys.modules) - before:
            # Two copies of these would be two kinds of the same thing, and no folder of a job can have its own.
            if name not in sys.builtin_module_names and not (name[0] == "_" and _is_extension(sys.modules[name])):
                del sys.modules[name]
    return process


def _is_extension(module):
    return getattr(module, "__file__", "").endswith(".so")


def _customize(channel, process):
    """Run the user's own files of our name, which Python would have run in our place."""
    site = sys.modules["site"]
    del sys.modules["sitecustomize"]
    try:
        site.execsitecustomize()
        if site.ENABLE_USER_SITE:
            site.execusercustomize()
    except BaseException as error:
        process.refuse(channel, "its sitecustomize fails: " + repr(error))


_take_hold()
if "sitecustomize" not in sys.modules:
    raise ImportError("there is none", name="sitecustomize")  # as `site` would have met it
