"""Regular expressions that find metrics in the log of a program that reports none."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dibs.errors import BadInput

_LONGEST_PATTERN = 500
_SHOWN_PATTERN = 100  # letters of it, in a message
_MOST_WIDE = 4
# How many letters of a line are searched, by the number of `.*`: the time may grow with the square of them.
_LONGEST_SEARCHED = {0: 4_000, 1: 4_000, 2: 800}
_LONGEST_SEARCHED_IF_WIDER = 300


class LogPattern:
    """A regular expression that finds metrics in a line of a log; its groups are named after the metrics.

    A single group needs no name. Expressions whose search could take hours are refused.
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """Raise BadInput where it cannot be compiled, could take hours, or has no group for a metric."""
        self.text = text
        if len(text) > _LONGEST_PATTERN:
            raise self._refused(f"it has more than {_LONGEST_PATTERN} letters", "a shorter one will do")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # FutureWarning about nested sets
                self._compiled = re.compile(text)
                tree = re._parser.parse(text)  # type: ignore[attr-defined]  # the only way to see repetitions
        except (re.error, RecursionError, OverflowError) as error:
            raise self._refused(str(error), _EXAMPLE) from None
        wide = self._count_wide(tree, is_inside=False)
        if wide > _MOST_WIDE:
            raise self._refused(f"it has more than {_MOST_WIDE} of `.*`, which can take hours", _EXAMPLE)
        self._longest = _LONGEST_SEARCHED.get(wide, _LONGEST_SEARCHED_IF_WIDER)
        self._groups = self._groups_of(names)

    @property
    def names(self) -> Sequence[str]:
        """Of what it finds."""
        return list(self._groups)

    def read(self, line: str) -> Mapping[str, str]:
        """The names and texts found in a line; empty where the line does not match."""
        found = self._compiled.search(line, 0, self._longest)
        if not found:
            return {}
        return {name: found[group] for name, group in self._groups.items() if found[group] is not None}

    def _groups_of(self, names: Sequence[str]) -> dict[str, int]:
        groups = dict(self._compiled.groupindex)
        missing = [name for name in names if name not in groups]
        unnamed = [group for group in range(1, self._compiled.groups + 1) if group not in groups.values()]
        if not missing:
            return groups
        if len(missing) > 1 or len(unnamed) != 1:
            raise self._refused(f"no group of it is called {missing[0]}", _EXAMPLE)
        return groups | {missing[0]: unnamed[0]}

    def _count_wide(self, tree: Iterable[Any], *, is_inside: bool) -> int:
        """The number of repetitions that match everything. Nested repetitions are refused: they can take hours."""
        wide = 0
        for kind, inner in tree:
            is_repeat = str(kind) in _REPEATS and inner[1] > _FEW
            if is_inside and (is_repeat or str(kind) in ("BRANCH", "GROUPREF")):
                raise self._refused("it repeats something that repeats or varies, which can take hours", _EXAMPLE)
            wide += is_repeat and "ANY" in repr(inner[2])
            for below in _below(inner):
                wide += self._count_wide(below, is_inside=is_inside or is_repeat)
        return wide

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot use the expression {shown_pattern(self.text)}: {why}", remedy=remedy)


def shown_pattern(text: str) -> str:
    """An expression as it was typed, for a message: `repr` would double its backslashes."""
    return "'" + repr(text[:_SHOWN_PATTERN])[1:-1].replace("\\\\", "\\") + "'"


_EXAMPLE = r"write it as: val_loss=(\S+), or for several: loss=(?P<loss>\S+) acc=(?P<acc>\S+)"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_FEW = 10  # `(?: *\d+){1,3}` repeats too, but only a few times


def _below(inner: Any) -> Iterable[Any]:
    """The sub-patterns of a part of any kind."""
    if isinstance(inner, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield inner
    elif isinstance(inner, list | tuple):
        for part in inner:
            yield from _below(part)


MOST_PATTERNS = 16
AUTO = "auto"  # in the place of an expression: the formats that common programs print

LineReader = Callable[[str], Mapping[str, str]]


def log_reader(patterns: Sequence[str]) -> LineReader:
    """What finds metrics in a line of a log, by these expressions; BadInput for one that cannot be used."""
    readers = [read_common_formats if text == AUTO else _named_pattern(text).read for text in patterns]

    def read(line: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for reader in readers:
            found |= reader(line)
        return found

    return read


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """The same, each once. BadInput for one that cannot be used, and where there are too many."""
    found = tuple(dict.fromkeys(patterns))
    if len(found) > MOST_PATTERNS:
        raise BadInput(f"these are {len(found)} expressions", remedy=f"a job has at most {MOST_PATTERNS} of them")
    log_reader(found)
    return found


def with_names(text: str, names: Sequence[str]) -> str:
    """The same expression with names for its groups: its only group may have none. Empty where that cannot be."""
    missing = [name for name in names if name.isidentifier() and f"(?P<{name}>" not in text]
    if len(missing) == 1:
        text = _PLAIN_GROUP.sub(f"(?P<{missing[0]}>", text, count=1)
    try:
        return text if LogPattern(text, ()).names else ""
    except BadInput:
        return ""


_PLAIN_GROUP = re.compile(r"(?<!\\)\((?!\?)")


def _named_pattern(text: str) -> LogPattern:
    pattern = LogPattern(text, ())
    if not pattern.names:
        raise BadInput(
            f"cannot use the expression {shown_pattern(text)}: no group of it has a name",
            remedy=r"the name of a group is that of the metric: loss=(?P<loss>\S+); `auto` knows common formats",
        )
    return pattern


def read_common_formats(line: str) -> Mapping[str, str]:
    """What Keras, Lightning, the trainer of transformers, tqdm and most hand-written loops print.

    Only names that are usual for metrics are taken: `port: 8080` is not one.
    """
    line = line[: _LONGEST_SEARCHED[0]]
    found = {}
    for pair in _NAMED_NUMBER.finditer(line):
        name = pair[1].strip("'\"").replace(" ", "_")
        if _USUAL.search(name):
            found[name] = pair[2]
    epoch, step = _EPOCH.search(line), _STEP.search(line)
    if epoch and step and step[2]:  # a step inside an epoch: 2.25 is a quarter of the third
        found["step"] = f"{float(epoch[1]) - 1 + min(1.0, float(step[1]) / max(1.0, float(step[2]))):g}"
        found |= {"steps": epoch[2]} if epoch[2] else {}
    elif place := epoch or step:
        found["step"] = place[1]
        found |= {"steps": place[2]} if place[2] else {}
    elif bar := _TQDM.search(line):
        found["progress"] = f"{bar[1]}%"
        found |= {"step": bar[2]} if bar[2] else {}
    return found


# `loss: 0.1`, `loss=0.1`, `'loss': 0.5`, `val loss 0.3`, `Loss 0.31`
_NAMED_NUMBER = re.compile(
    r"""(?<![\w./-])(["']?(?:(?:[Tt]rain|[Vv]al|[Tt]est|[Ee]val|[Vv]alidation)(?:ing)?[ ])?"""
    r"""[A-Za-z_][\w./@-]{0,60}+["']?)(?:\s?[:=]\s{0,3}|\s)"""
    r"""([-+]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][-+]?\d{1,3})?|[-+]?(?i:nan|inf)(?:inity)?)"""
    r"""(?![\w.]*[\w:/%])"""
)
_USUAL = re.compile(
    r"(?i)(?:^|[_./ @-])(?:loss|losses|acc|accuracy|err|error|mse|mae|rmse|auc|auroc|f1|precision|recall|"
    r"perplexity|ppl|bleu|rouge|reward|return|lr|learning_rate|grad_norm|norm|score|iou|miou|dice|map|psnr|ssim|fid|kl|"
    r"elbo|nll|bpb|bpd|bpc|r2|entropy|wer|cer|top1|top5|acc1|acc5|mfu|throughput)(?:$|[_./ @0-9-])"
)
_COUNT = r"""["']?\s?[:=#]?\s{0,3}\[?(\d{1,12}(?:\.\d{1,6})?)(?:\s?(?:/|of)\s?(\d{1,12}))?(?![\w.]*[\w%])"""
_EPOCH = re.compile(rf"(?i)(?<![\w.-])[\[(]?epochs?{_COUNT}")
_STEP = re.compile(rf"(?i)(?<![\w.-])[\[(]?(?:global[_ ])?(?:step|iter|iteration|batch){_COUNT}")
_TQDM = re.compile(r"(?<![\d.])(\d{1,3})%\|[^|]{0,400}\|\s{0,3}(?:(\d{1,12})/\d{1,12})?")
