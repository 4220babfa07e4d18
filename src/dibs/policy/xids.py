"""What the driver's own error numbers (Xids) say: that the card is broken, or that a program did something wrong.

After NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Of the card are
those that ask for a reset or a repair of it; of the program those that ask for its restart, and 109, which most
often follows from a program that hangs. What only reports (63: a row of memory was replaced, 92: errors that were
corrected, 154: what another one asks for) or only follows (45: cleaning up behind a process that has ended) is in
neither table, and so are the links of later cards (144-150), most of whose errors harm nobody.
"""

_OF_THE_CARD = {
    46: "it stopped processing",
    48: "its memory has an error that cannot be corrected",
    54: "its power cable is not connected",
    62: "its internal controller has halted",
    64: "a broken row of its memory cannot be replaced",
    74: "its NVLink connection has failed",
    79: "it has fallen off the bus",
    94: "its memory has an error that cannot be corrected, and one program was hit",
    95: "its memory has an error that cannot be corrected, and nobody knows whom it hit",
    110: "it reports a security fault",
    119: "its system processor does not answer",
    120: "its system processor has failed",
    136: "its NVLink connection cannot be set up",
    140: "its memory has an error that cannot be corrected",
    143: "it cannot be initialized",
    158: "it does not answer in time",
    167: "its PCIe connection does not answer in time",
    171: "its memory has an error that cannot be corrected",
    172: "its caches have an error that cannot be corrected",
}
_OF_THE_PROGRAM = {
    8: "a kernel of the program was stopped",
    13: "an illegal instruction or an access out of bounds by the program",
    31: "an illegal memory access by the program",
    32: "a broken stream of commands",
    43: "the program was stopped after a fault of its own",
    69: "a command that the card does not know",
    109: "the program kept the card for too long",
    137: "an illegal access by the program to the memory of another card",
}


def fault_of_card(xid: int) -> str:
    """`Xid 79: it has fallen off the bus`; empty for what is not the card's fault."""
    return f"Xid {xid}: {_OF_THE_CARD[xid]}" if xid in _OF_THE_CARD else ""


def fault_of_program(xid: int) -> str:
    """`Xid 31: an illegal memory access by the program`; empty for what is not the program's fault."""
    return f"Xid {xid}: {_OF_THE_PROGRAM[xid]}" if xid in _OF_THE_PROGRAM else ""
