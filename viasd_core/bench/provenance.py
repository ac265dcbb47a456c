"""Where a measurement comes from: versions, hardware, source revision, load. No paths and no user names."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors")


def provenance(device: str) -> dict[str, Any]:
    """Everything about machine and code that a reader needs to judge a figure. `device` is a torch device
    string."""
    from .. import __version__

    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "viasd_core": __version__,
        "git": git_revision(Path(__file__).resolve().parent),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _package_version(name) for name in PACKAGES},
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_average_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        **torch_facts(device),
    }


def torch_facts(device: str) -> dict[str, Any]:
    """Threads, and on a CUDA device its name, memory (bytes), driver-visible capability and precision
    switches."""
    import torch

    facts: dict[str, Any] = {
        "device": device,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }
    if device.startswith("cuda"):
        card = torch.cuda.get_device_properties(device)
        facts |= {
            "gpu": card.name,
            "gpu_memory_bytes": card.total_memory,
            "gpu_capability": f"{card.major}.{card.minor}",
            "cuda": torch.version.cuda,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    return facts


def git_revision(folder: Path) -> dict[str, Any] | None:
    """Commit and whether tracked files differ from it; None outside a git checkout of this package."""
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    sha = _git(folder, "rev-parse", "HEAD")
    if tracked is None or sha is None:
        return None
    return {"sha": sha, "modified": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def file_facts(path: Path) -> dict[str, str]:
    """Name and sha256 of a data file, so that a result names its prompts without a path."""
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def cpu_name() -> str:
    """The processor as the kernel names it, else as Python does."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
