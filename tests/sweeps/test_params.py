"""`-p NAME VALUES...` is taken out of the command line before click sees it."""

import pytest

from dibs.errors import BadInput
from dibs.sweeps.params import split_params


@pytest.mark.parametrize(
    ("argv", "parameters", "rest"),
    [
        (["-p", "lr", "0.1", "-p", "bs", "32", "64"], [("lr", ("0.1",)), ("bs", ("32", "64"))], []),
        (["-n", "2", "-p", "lr", "1", "--quiet"], [("lr", ("1",))], ["-n", "2", "--quiet"]),
        (["-p", "lr", "-0.1", "-1e-3", "-inf", "-f", "x"], [("lr", ("-0.1", "-1e-3", "-inf"))], ["-f", "x"]),
        (["-p", "lr", "1", "-"], [("lr", ("1",))], ["-"]),
        (["--param", "lr", "1", "--", "-p", "x"], [("lr", ("1",))], ["--", "-p", "x"]),
        (["--", "mkdir", "-p", "a"], [], ["--", "mkdir", "-p", "a"]),
        (["-p", "lr"], [("lr", ())], []),
        (["-p", "tag", "", "a b"], [("tag", ("", "a b"))], []),
        ([], [], []),
    ],
)
def test_parameters_are_split_from_the_rest(argv, parameters, rest):
    assert split_params(argv) == (parameters, rest)


@pytest.mark.parametrize("argv", [["-p"], ["-p", "--quiet"], ["-p", "--", "lr", "1"]])
def test_a_parameter_without_a_name_is_refused(argv):
    with pytest.raises(BadInput) as refusal:
        split_params(argv)

    assert refusal.value.message == "-p needs a name and values"
