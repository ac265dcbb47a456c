"""Processes that `accelerate launch` started together: who one of them is, and waiting for the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Team:
    """Process `rank` of `size`; `wait` returns when every process has come to it."""

    rank: int = 0
    size: int = 1
    wait: Callable[[], None] = lambda: None

    @property
    def leads(self) -> bool:
        """One process writes files and talks."""
        return self.rank == 0


def join_team(device: str) -> Team:
    """The team this process was launched in; on CUDA the process is bound to its own card."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Team()
    from accelerate import PartialState

    state = PartialState(cpu=device == "cpu")
    return Team(state.process_index, state.num_processes, state.wait_for_everyone)
