"""Small files of the kernel. One that is not there, or cannot be read now, says nothing."""

import os


def text_in(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_in(path: str) -> int | None:
    text = text_in(path)
    return int(text) if text.lstrip("-").isdigit() and text.isascii() else None


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
