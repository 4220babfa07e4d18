"""What `hydra.launcher` holds with `hydra/launcher=dibs`: the wishes of every job of a multirun."""

from dataclasses import field, make_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from dibs.model.fields import Field, Kind, Verb, fields_of

_TYPES: dict[Kind, Any] = {  # all others are text
    Kind.COUNT: int,
    Kind.FLAG: bool,
    **dict.fromkeys((Kind.GPU_IDS, Kind.NAMES, Kind.CAUSES, Kind.MODULES, Kind.DEPENDENCIES), Any),
}


def _entry(row: Field) -> tuple[str, Any, Any]:
    """What is null is left to the queue."""
    if row.kind is Kind.VARIABLES:
        return row.word, dict[str, str], field(default_factory=dict)
    kind = _TYPES.get(row.kind, str)
    if row.kind is Kind.COUNT and row.default:
        return row.word, kind, row.default
    return row.word, kind | None if kind is not Any else kind, None


_WORDS = {row.word: _entry(row) for row in fields_of(Verb.HYDRA)}
_WORDS["array_parallelism"] = ("array_parallelism", int | None, None)
_WORDS["name"] = ("name", str | None, "${hydra.job.name}")
DibsLauncherConf = make_dataclass(
    "DibsLauncherConf",
    [("_target_", str, "hydra_plugins.dibs_launcher.launcher.DibsLauncher"), *_WORDS.values()],
    namespace={"__doc__": "The words of `dibs add`.", "__module__": __name__},
)

ConfigStore.instance().store(group="hydra/launcher", name="dibs", node=DibsLauncherConf, provider="dibs")
