"""What a search is asked to do, and on which prompts: checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..distill.prompts import read_prompts
from ..errors import SettingsError
from ..method_options import METHOD_OPTIONS
from ..presets import Preset
from ..settings import Settings
from .calibration import split
from .cost import CostSettings
from .masks import GRANULARITIES
from .score import ScoreSettings, serving
from .search import SearchSettings


@dataclass(frozen=True)
class Request:
    """What `dimr` is asked to do, checked before anything is loaded. Raises SettingsError."""

    search: SearchSettings
    skip_ratio: float | None = None  # None: the preset's
    window: int | None = None  # rows; None: the debt cap that will serve
    tokens: int = 60  # a prompt's continuation, at most
    prompts: int = 8  # at most, held-out ones included
    rho: float = 0.3
    slim_kv: str | None = None  # None: the preset's
    cost: CostSettings = CostSettings()  # noqa: RUF009 (frozen)
    ends: bool = False  # the first and last layer may be skipped too
    granularity: str = "layer"  # or sublayer: attention and MLP are skipped apart
    inside: str | None = None  # a mask (file or bits) of a stronger tier that the found one must lie inside
    curve: bool = False

    def __post_init__(self) -> None:
        if self.skip_ratio is not None and not 0 < self.skip_ratio <= 0.95:
            raise SettingsError(f"skip_ratio is {self.skip_ratio:g}; give a number above 0 and up to 0.95")
        if self.granularity not in GRANULARITIES:
            known = ", ".join(GRANULARITIES)
            raise SettingsError(f"granularity is {self.granularity!r}; choose one of {known}")
        for name, least in (("tokens", 1), ("prompts", 2)):
            if not least <= getattr(self, name) <= 100_000:
                raise SettingsError(
                    f"{name} is {getattr(self, name)}; give a whole number of at least {least}"
                )

    def settings(self, preset: Preset) -> Settings:
        """VIA-SD as the preset serves it, with what was asked for instead. Raises SettingsError."""
        used = METHOD_OPTIONS["via-sd"]
        values = {key: value for key, value in preset.settings.items() if key in used}
        if self.slim_kv is not None:
            values["slim_kv"] = self.slim_kv
        if self.skip_ratio is not None:
            values["skip_ratio"] = self.skip_ratio
        return Settings(method="via-sd", **values)

    def scoring(self, settings: Settings) -> ScoreSettings:
        changes = {"rho": self.rho, "cost": self.cost}
        return serving(settings, **changes | ({"window": self.window} if self.window is not None else {}))


def read_texts(
    preset: Preset, data: Sequence[str], held_out: Sequence[str], count: int
) -> tuple[list[str], list[str]]:
    """(prompts to search on, held-out prompts), `count` in all: from files, else the preset's own.

    Raises DataError, SettingsError.
    """
    prompts = read_prompts(data) if data else list(preset.prompts)
    if not prompts:
        raise SettingsError(f"preset {preset.name} names no prompts; give some with --data")
    if not held_out:
        return split(prompts[:count])
    own, others = split(prompts, read_prompts(held_out))
    own = [text for text in own if text not in set(others)] or own
    unseen = max(1, count // 3)
    return own[: max(1, count - unseen)], others[:unseen]
