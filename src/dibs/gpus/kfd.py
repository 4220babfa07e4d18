"""AMD cards as ROCm knows them: the nodes of KFD and the ways between them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dibs.gpus.sysfs import listed, text_in
from dibs.model.gpus import Links

_XGMI = 11  # the type of a link from card to card, as the kernel counts them
_OVER_XGMI = 100  # and one more for each 10 GB/s: better than any way over PCI
_OVER_PCI = 99  # less the weight that the kernel gives the way: 40 by one processor, 72 from one to another


@dataclass(frozen=True, kw_only=True, slots=True)
class KfdNode:
    """A card in KFD. One that is divided is a node for each part; the first of them stands for it."""

    folder: str
    number: int  # among all nodes; processors are nodes too
    ranks: tuple[int, ...]  # of its parts among all: by these ROCR_VISIBLE_DEVICES counts
    gpu_ids: tuple[str, ...]  # of its parts: by these the files of a process name them
    unique_id: int  # 0 where the card has none
    pci: str


def nodes(root: str) -> list[KfdNode]:
    """The cards in ROCm's order; none where KFD is not there."""
    found: list[KfdNode] = []
    rank = 0
    top = f"{root}/sys/class/kfd/kfd/topology/nodes"
    for number in sorted(int(name) for name in listed(top) if name.isdigit()):
        folder = f"{top}/{number}"
        gpu_id = text_in(f"{folder}/gpu_id")
        if gpu_id not in ("", "0"):  # 0 is a processor
            facts = _facts(f"{folder}/properties")
            place = facts.get("location_id", 0)
            pci = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            node = KfdNode(
                folder=folder,
                number=number,
                ranks=(rank,),
                gpu_ids=(gpu_id,),
                unique_id=facts.get("unique_id", 0),
                pci=pci,
            )
            rank += 1
            if found and _is_part(node, found[-1]):
                last = found.pop()
                node = replace(last, ranks=last.ranks + node.ranks, gpu_ids=last.gpu_ids + node.gpu_ids)
            found.append(node)
    return found


def links_between(cards: Mapping[str, KfdNode | None]) -> Links:
    """How well each two of these cards are connected, by key."""
    keys = {node.number: key for key, node in cards.items() if node is not None}
    links: dict[tuple[str, str], int] = {}
    for key, node in cards.items():
        if node is None:
            continue
        for kind in ("io_links", "p2p_links"):
            for name in listed(f"{node.folder}/{kind}"):
                facts = _facts(f"{node.folder}/{kind}/{name}/properties")
                other = keys.get(facts.get("node_to", -1))
                if other is not None and other != key:
                    pair = min(key, other), max(key, other)
                    links[pair] = max(links.get(pair, 0), _quality(facts))
    return links


def _is_part(node: KfdNode, card: KfdNode) -> bool:
    """Parts share the id of their card. The kernel counts them where the function of the device stands."""
    return node.unique_id == card.unique_id != 0 and node.pci[:-1] == card.pci[:-1]


def _quality(facts: Mapping[str, int]) -> int:
    if facts.get("type") == _XGMI:
        return _OVER_XGMI + max(1, facts.get("max_bandwidth", 0) // 10_000)  # it is told in MB/s
    return max(0, _OVER_PCI - facts.get("weight", _OVER_PCI))


def _facts(path: str) -> dict[str, int]:
    """Out of lines like `location_id 49408`."""
    found = {}
    for line in text_in(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found
