"""YAML whose scalars keep their text: `1e-4` stays `1e-4`, `010` stays `010`, and `on` stays `on`."""

from typing import TYPE_CHECKING, Any

from dibs.errors import BadInput

if TYPE_CHECKING:
    import yaml

_DEEPEST = 30
_MOST_NODES = 100_000  # with the nodes that aliases repeat: nine lines can stand for a billion


class YamlBool(str):
    """An unquoted true or false, in any of YAML's spellings, as it was written."""

    __slots__ = ()

    @property
    def is_true(self) -> bool:
        return self.lower() in ("true", "yes", "on")


class QuotedText(str):
    """A text in quotes: `"32"` is not a number."""

    __slots__ = ()


def read_yaml(text: str, path: str) -> dict[str, Any]:
    """The mapping in a file, of mappings, lists, texts and None; BadInput where it is not a mapping."""
    try:
        import yaml
    except ImportError:
        raise BadInput(
            f"cannot read {path}: PyYAML is not installed", remedy="pip install 'dibs[sweeps]' brings it"
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"cannot read {path}: {error.problem}{line}", remedy="it is YAML") from None
    except yaml.YAMLError as error:
        raise BadInput(f"cannot read {path}: {str(error).splitlines()[0]}", remedy="it is YAML") from None
    except RecursionError:
        raise BadInput(f"cannot read {path}: it is nested too deeply", remedy="a sweep needs few levels") from None
    value = _Converter(path).value(node, 0) if node is not None else None
    if not isinstance(value, dict):
        raise BadInput(
            f"cannot read {path}: it is not a list of keys and values", remedy="command: ... parameters: ..."
        )
    return value


class _Converter:
    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0

    def value(self, node: "yaml.Node", depth: int) -> Any:
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST_NODES:
            raise self._refused(node, "it is nested too deeply, or has too many aliases")
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "int", "float", "timestamp", "value"):
            return QuotedText(node.value) if getattr(node, "style", None) else str(node.value)
        if kind == "null":
            return None
        if kind == "bool":
            return YamlBool(node.value)
        if kind == "seq":
            return [self.value(each, depth + 1) for each in node.value]
        if kind == "map":
            return self._mapping(node, depth + 1)
        raise self._refused(node, f"{node.tag[:60]} is not allowed in a sweep file")

    def _mapping(self, node: "yaml.Node", depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag.endswith(":merge"):
                merged |= self._merged(value_node, depth)
                continue
            key = self.value(key_node, depth)
            if not isinstance(key, str):
                raise self._refused(key_node, "a key must be a text")
            if key in own:
                raise self._refused(key_node, f"the key {key[:60]} is given twice")
            own[str(key)] = self.value(value_node, depth)
        return merged | own

    def _merged(self, node: "yaml.Node", depth: int) -> dict[str, Any]:
        """The keys that `<<: *other` adds; the first of several mappings wins."""
        given = self.value(node, depth)
        merged: dict[str, Any] = {}
        for each in reversed(given if isinstance(given, list) else [given]):
            if not isinstance(each, dict):
                raise self._refused(node, "<< takes mappings")
            merged |= each
        return merged

    def _refused(self, node: "yaml.Node", why: str) -> BadInput:
        return BadInput(
            f"cannot read {self._path}: {why}, in line {node.start_mark.line + 1}", remedy="correct it"
        )
