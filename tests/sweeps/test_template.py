"""Templates: what is replaced, what stays, and that values arrive as they are."""

import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.spec import CommandTemplate, read_spec
from dibs.sweeps.template import LineTemplate, WordsTemplate, line_without, words_without
from examples import examples
from sweeps.specs import a_sweep, values

# What a process can be given: any text without NUL, with bytes that are no UTF-8 among it.
VALUES = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.sampled_from("'\"\\$`!{}()<>#&;|*?~ \t\n" + "\udc80\udcff"),
    ),
    max_size=12,
).map(lambda text: text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))

PLACES = [
    "printf %s {x}",
    'printf %s "{x}"',
    "printf %s '{x}'",
    "printf %s $'{x}'",
    "printf %s ''{x}\"\"",
    'printf %s "$(printf "%s." {x})"',
    'printf %s "$(printf "%s." "{x}")"',
    "printf %s \"$(printf '%s.' '{x}')\"",
    "(printf %s {x})",
    "printf %s \\'''{x} | sed '1s/^.//'",
    "# it's a comment\nprintf %s {x}",
    "printf %s ${NOTHING:-}{x}",
    'printf %s "${NOTHING:-}{x}"',
    'true "\\"" ; printf %s {x}',
    "true $(((1 + 2) * 3)); printf %s {x}",
    "(( 1 + (2) )); printf %s {x}",
]


def bash(line: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line.encode("utf-8", "surrogateescape")], capture_output=True, check=False
    )
    assert done.stderr == b"", line
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("line", PLACES)
@settings(max_examples=25, deadline=None)
@given(value=VALUES)
def test_a_value_arrives_as_it_is_wherever_it_stands(line, value):
    template = LineTemplate(line, ["x"])

    arrived = bash(template.expand({"x": value}))

    expected = value if "%s." not in line else value + "."
    assert arrived in (expected, expected + "\n")  # sed ends its last line
    assert arrived == expected or "sed" in line


@pytest.mark.parametrize(
    "line",
    [
        "printf %s `printf %s {x}`",
        "printf %s ${NOTHING:-{x}}",
        "true # {x}",
        "cat <<EOF\n{x}\nEOF",
        "printf %s $(( {x} + 1 ))",
        'printf %s "$(((1 + 2) * {x}))"',
        "(( 1 + {x} ))",
        'printf %s "$(case a in a) echo {x};; esac)"',
    ],
)
def test_where_no_quoting_is_always_right_only_plain_values_are_taken(line):
    template = LineTemplate(line, ["x"])

    with pytest.raises(BadInput) as refusal:
        template.expand({"x": "a'; rm -rf b"})

    assert "safely" in refusal.value.message
    assert template.expand({"x": "0.1"}) == line.replace("{x}", "0.1")


@pytest.mark.parametrize(
    ("line", "expanded"),
    [
        ("train --lr {lr}", "train --lr 0.1"),
        ("train {lr}{lr} --lr={lr}", "train 0.10.1 --lr=0.1"),
        ("""train '{"a": {"lr": {lr}}}'""", """train '{"a": {"lr": 0.1}}'"""),
        ("""train '{"a":{"b":{lr}}}' {}""", """train '{"a":{"b":0.1}}' {}"""),
        ("train {{lr}} {{x}} }} {{ {lr}", "train {{lr}} {{x}} }} {{ 0.1"),
        ("train ${lr} ${HOME} '${lr}' {lr}", "train ${lr} ${HOME} '${lr}' 0.1"),
        ("echo {a,b} {1..3} {lr}", "echo {a,b} {1..3} 0.1"),
        ("find . -exec {} ; {lr}", "find . -exec {} ; 0.1"),
        ("echo \\{lr} \\{x} {lr}", "echo \\{lr} \\{x} 0.1"),
        ("git log @{upstream} {lr}", "git log @{upstream} 0.1"),
        ("ssh me@{lr}", "ssh me@0.1"),
        ("{ a; b {lr}; }", "{ a; b 0.1; }"),
        ("awk '{ print }' {lr}", "awk '{ print }' 0.1"),
    ],
)
def test_only_known_names_are_replaced(line, expanded):
    template = LineTemplate(line, ["lr"])

    assert template.expand({"lr": "0.1"}) == expanded


def test_a_name_may_have_a_hyphen():
    template = LineTemplate("train --batch-size {batch-size}", ["batch-size"])

    assert template.expand({"batch-size": "32"}) == "train --batch-size 32"


def test_a_placeholder_that_no_parameter_fills_is_refused_by_name():
    with pytest.raises(BadInput) as refusal:
        LineTemplate("train {lr} {sede}", ["lr", "seed"])

    assert "{sede}" in refusal.value.message
    assert "lr, seed" in refusal.value.remedy


def test_a_parameter_that_fills_nothing_is_refused_by_name():
    with pytest.raises(BadInput) as refusal:
        LineTemplate("train {lr}", ["lr", "seed"])

    assert "the parameter seed is not in the command" in refusal.value.message


@given(st.text(alphabet="{}'\"\\$`()#<12 \n", max_size=30))
def test_a_template_of_any_text_keeps_all_but_its_placeholders(text):
    template = LineTemplate(text + "\n{lr}", ["lr"])

    expanded = template.expand({"lr": "0.5"})

    assert expanded == text + "\n0.5"


@given(VALUES)
def test_words_that_no_shell_touches_take_values_as_they_are(value):
    template = WordsTemplate(["train", "--config={x}", json.dumps({"a": 1}), "${x}"], ["x"])

    words = template.expand({"x": value})

    assert words == ["train", "--config=" + value, '{"a": 1}', "${x}"]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("train --m {m} --x {x}", "train --x {x}"),
        ("train --x {x} --m {m}", "train --x {x}"),
        ("train --m={m} x={x}", "train x={x}"),
        ("train -m {m} -m{m} {x}", "train {x}"),
        ("train m={m} +m={m} ++a.m={m} {x}", "train {x}"),
        ("train {m} {x}", "train {x}"),
        ("""train "{m}" '{m}' {x}""", "train {x}"),
        ("""train --m '{m}' --m="{m}" '--m={m}' {x}""", "train {x}"),
        ("M={m} train {x}", " train {x}"),
        ("train \\\n  --m {m} \\\n  --x {x}", "train \\\n  --x {x}"),
        ("train --m \\\n  {m} --x {x}", "train --x {x}"),
        ("train --m {m}; echo {m} {x}", "train; echo {x}"),
        ("a | train --m {m} | b {x}", "a | train | b {x}"),
        ("train --verbose; {m} {x}", "train --verbose;  {x}"),
        ("echo $(train --m {m}) {x}", "echo $(train) {x}"),
        ("(train --m {m}) && {x}", "(train) && {x}"),
        ('ssh host "train --m {m}" {x}', 'ssh host "train" {x}'),
        ('ssh host "train --m {m} --x {x}"', 'ssh host "train --x {x}"'),
        ("ssh host '--m {m} b' {x}", "ssh host ' b' {x}"),
        ("train -- {m} {x}", "train -- {x}"),
        ("train --a 3 {m} {x}", "train --a 3 {x}"),
        ("train --a={x} {m}", "train --a={x}"),
        ("train -1 {m} {x}", "train -1 {x}"),
        # Nothing to leave out: it is the middle of a longer word.
        ("train --out runs/{x}-{m}", "train --out runs/{x}-none"),
        ('train --name "the run of {m}" {x}', 'train --name "the run of none" {x}'),
        ("""train '{"m": {m}}' {x}""", """train '{"m": none}' {x}"""),
        ("train {x} > {m}", "train {x} > none"),
        # Not a placeholder.
        ("train \\{m} ${m} {{m}} --m {m} {x}", "train \\{m} ${m} {{m}} {x}"),
    ],
)
def test_a_parameter_that_is_none_takes_its_flag_with_it(line, left):
    assert line_without(line, ["m", "x"], {"m"}) == left


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["train", "--m", "{m}", "--x", "{x}"], ["train", "--x", "{x}"]),
        (["train", "--m={m}", "-m{m}", "m={m}", "{x}"], ["train", "{x}"]),
        (["train", "--verbose", "{m}", "{x}"], ["train", "{x}"]),
        (["train", "--", "{m}", "{x}"], ["train", "--", "{x}"]),
        (["train", "--name", "run {m}", "{x}"], ["train", "--name", "run none", "{x}"]),
        (["bash", "-c", "train --m {m} a", "{x}"], ["bash", "-c", "train a", "{x}"]),
        (["train", "o-{m}", "{x}"], ["train", "o-none", "{x}"]),
    ],
)
def test_the_same_for_words_that_no_shell_touches(words, left):
    assert words_without(words, ["m", "x"], {"m"}) == left


@pytest.mark.parametrize("words", [{"words": ["train", "-v", "{amp}"]}, {"command": "train -v {amp}"}])
def test_a_parameter_whose_values_are_flags_leaves_the_flag_before_it(words):
    template = CommandTemplate(read_spec({**words, "parameters": [values("amp", "--amp", None)]}))

    on, off = template.expand({"amp": "--amp"}), template.expand({"amp": None})

    assert on in (["train", "-v", "--amp"], "train -v --amp")
    assert off in (["train", "-v"], "train -v")


@pytest.mark.parametrize("line", ["echo `train {m}`", "cat <<EOF\n{m}\nEOF", "true # {m}"])
def test_where_it_cannot_be_left_out_safely_the_sweep_is_refused(line):
    with pytest.raises(BadInput) as refusal:
        read_spec({"command": line, "parameters": [values("m", "1", None)]})

    assert "cannot leave {m} out" in refusal.value.message
    assert read_spec({"command": line, "parameters": [values("m", "1", "2")]})


@pytest.mark.parametrize("line", ["echo `train {m}`", "echo $(( {m} + 1 ))"])
def test_a_value_that_cannot_be_quoted_where_it_stands_is_refused_before_anything_runs(line):
    with pytest.raises(BadInput) as refusal:
        read_spec({"command": line, "parameters": [values("m", "1", "$(id)")]})

    assert "cannot put '$(id)'" in refusal.value.message


NAMES = ["alpha", "b", "learning-rate", "model.width"]
TEXTS = st.text(st.sampled_from("ab '\"$`\\;{}()\n-"), max_size=6)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(range(5))), min_size=1, max_size=5),
    st.tuples(*[st.one_of(st.none(), TEXTS)] * len(NAMES)),
)
def test_a_shell_gets_the_flags_that_have_a_value_and_no_others(flags, texts):
    point = dict(zip(NAMES, texts, strict=True))
    forms = ["--{0} {{{0}}}", "--{0}={{{0}}}", '--{0} "{{{0}}}"', "--{0}='{{{0}}}'", "{{{0}}}"]
    line = "printf '%s\\0' first " + " ".join(forms[form].format(name) for name, form in flags) + " last"
    expected = ["first"]
    for name, form in flags:
        value = point[name]
        if value is not None:
            expected += [f"--{name}={value}"] if form in (1, 3) else [value] if form == 4 else [f"--{name}", value]

    used = sorted({name for name, _ in flags})
    spec = read_spec({"command": line, "parameters": [values(name, None, "x") for name in used]})
    expanded = CommandTemplate(spec).expand({name: point[name] for name in used})

    done = subprocess.run(["bash", "-c", expanded], capture_output=True, check=True, text=True)
    assert done.stdout.split("\0")[:-1] == [*expected, "last"]


def test_a_name_may_have_dots():
    spec = a_sweep([values("model.lr", "0.1", "0.2")], where=["model.lr < 1"])

    assert CommandTemplate(spec).expand({"model.lr": "0.1"}) == "train --model.lr 0.1"


def test_braces_with_dots_that_are_no_parameter_stay():
    spec = read_spec({"command": "fmt '{a.b}' {x}", "parameters": [values("x", "1", "2")]})

    assert CommandTemplate(spec).expand({"x": "1"}) == "fmt '{a.b}' 1"


def test_points_are_told_apart_by_their_command_and_folder():
    spec = a_sweep([values("lr", "0.1", "0.2", None), values("bs", "1", "2")])
    point = {"lr": "0.1", "bs": "1"}

    prints = [
        CommandTemplate(spec).fingerprint(point, "/here"),
        CommandTemplate(spec).fingerprint({"lr": "0.2", "bs": "1"}, "/here"),
        CommandTemplate(spec).fingerprint({"lr": None, "bs": "1"}, "/here"),
        CommandTemplate(spec).fingerprint(point, "/there"),
    ]

    assert len(set(prints)) == 4


def test_the_same_command_of_another_sweep_is_the_same_point():
    one = a_sweep([values("lr", "0.1", "0.2")])
    other = a_sweep([{"name": "lr", "low": 0.1, "high": 1}], method="random", samples=3, seed=9)

    assert printed(one) == printed(other)


def test_a_line_and_words_are_not_the_same():
    line = read_spec({"command": "train {lr}", "parameters": [values("lr", "0.1", "0.2")]})
    words = read_spec({"words": ["train", "{lr}"], "parameters": [values("lr", "0.1", "0.2")]})

    assert printed(line) != printed(words)


def test_a_number_that_is_read_elsewhere_is_another_number():
    """`train 1 val 2`: the same command, and either may be called the loss."""
    metrics = [{"name": "loss", "goal": "min"}]
    ways = [
        {},
        {"from": "log", "pattern": r"train (\d)"},
        {"from": "log", "pattern": r"val (\d)"},
        {"from": "file", "path": "a.json"},
        {"from": "file", "path": "b.json"},
    ]

    sweeps = [a_sweep([values("lr", "0.1", "0.2")], metrics=metrics, results=way) for way in ways]

    assert len({printed(spec) for spec in sweeps}) == len(ways)


def printed(spec):
    """The fingerprint of one of its points."""
    return CommandTemplate(spec).fingerprint({"lr": "0.1"}, "/x")


def test_a_parameter_that_is_never_anything_but_none_takes_its_flag_with_it():
    template = CommandTemplate(a_sweep([values("m", None), values("x", "1")]))

    assert template.expand({"m": None, "x": "1"}) == "train --x 1"


def test_a_name_may_have_a_slash_as_the_groups_of_hydra_have():
    words = WordsTemplate(["train", "data/aug={data/aug}", "{other/name}"], ["data/aug"])

    assert words.expand({"data/aug": "flip"}) == ["train", "data/aug=flip", "{other/name}"]
    assert line_without("train data/aug={data/aug}", ["data/aug"], {"data/aug"}) == "train"
