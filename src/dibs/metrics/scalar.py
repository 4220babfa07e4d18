"""A number in a file of another tool, and what such a file offers."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Scalar(NamedTuple):
    tag: str
    step: int | None
    at: float  # seconds since the epoch
    value: float


class ScalarFile(Protocol):
    """A file of TensorBoard, W&B or MLflow, which is read on while it grows."""

    @property
    def kind(self) -> str:
        """tensorboard, wandb or mlflow."""

    @property
    def folder(self) -> str:
        """Files of one kind in one folder belong together."""

    @property
    def is_read(self) -> bool:
        """To its end, as it was at the last look."""

    def scalars(self, deadline: float) -> Iterator[Scalar]:
        """The new ones, until a moment of the monotonic clock."""

    def finals(self) -> Iterator[Scalar]:
        """Numbers that were told once, without a step, as of the last look."""
