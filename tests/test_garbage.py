import ast
import gc

from garbage import no_garbage_collected

SOURCE = "\n".join(f"x{number} = [a, (b + c) * {number}]" for number in range(200))


class Parsing:
    """Parses source when it is collected, deeper in the stack than its collector."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        FOUND.append(parsed_below(10))


FOUND: list[ast.AST] = []


def parsed_below(depth: int) -> ast.AST:
    return parsed_below(depth - 1) if depth else ast.parse("a + b")


def test_source_is_parsed_while_there_is_garbage_whose_end_parses_source() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with no_garbage_collected():
            for _ in range(100):
                Parsing()
            tree = ast.parse(SOURCE)
            collected = len(FOUND)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()

    assert len(tree.body) == 200
    assert (collected, len(FOUND), gc.isenabled()) == (0, 100, True)
