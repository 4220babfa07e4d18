"""Templates: what is replaced, what stays, and that values arrive as they are."""

import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.template import LineTemplate, WordsTemplate

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
