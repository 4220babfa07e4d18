"""Which user of this machine is at the other end of a TCP connection, as the kernel knows it."""

import ipaddress
import os
import socket

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def is_stranger(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether another user's program has connected. Root's is none; of other machines it cannot be told.

    `ssh -L` connects as the user who has logged in.
    """
    uid = peer_uid(client, server)
    return uid is not None and uid not in (0, os.geteuid())


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The owner of the socket that is `client` to us; None where it is not on this machine."""
    theirs, ours = _spellings(*client), _spellings(*server)
    for table in _TABLES:
        try:
            with open(table) as lines:
                for line in lines:
                    fields = line.split()
                    if len(fields) > 7 and fields[1] in theirs and fields[2] in ours:
                        return int(fields[7])
        except OSError:
            continue
    return None


def _spellings(host: str, port: int) -> frozenset[str]:
    """`0100007F:2049`, as the kernel has it: groups of four bytes, each in the machine's own order."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    raw = [address.packed]
    if len(address.packed) == 4:
        raw.append(bytes(10) + b"\xff\xff" + address.packed)  # a socket for both kinds of address
    return frozenset(f"{_grouped(one)}:{port:04X}" for one in raw)


def _grouped(raw: bytes) -> str:
    groups = (int.from_bytes(raw[place : place + 4], "big") for place in range(0, len(raw), 4))
    return "".join(f"{socket.ntohl(group):08X}" for group in groups)
