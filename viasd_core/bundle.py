"""The trace bundle on disk (`viasd-trace/1`): a folder or zip of five CSV files and run.json.

Writing goes to a temporary name beside the target and ends in a rename, so a bundle is whole or absent.
Reading treats the bundle as untrusted: names and sizes are checked before, rows and values while it is read.
"""

from __future__ import annotations

import os
import shutil
import uuid
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from .bundle_format import FILES, MAX_ROWS, RUN_FILE, decode, encode
from .errors import TraceError
from .terminal import printable
from .trace import Trace

MAX_BYTES = 256 * 2**20  # all files together, uncompressed

_ZIP_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


def write_bundle(trace: Trace, path: str | Path) -> None:
    """Write `trace` to a folder, or to a zip when `path` ends in .zip; missing parent folders are made.

    An older bundle at `path` is replaced in one step. Raises TraceError when `path` holds anything else or
    cannot be written.
    """
    target = Path(path).absolute()
    contents = encode(trace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(target)
        spare = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            if _is_zip_name(target):
                _write_zip(spare, contents)
                os.replace(spare, target)
            else:
                _write_folder(spare, contents)
                _swap_folder(spare, target)
        finally:
            _remove(spare)
    except OSError as error:
        reason = error.strerror or error
        raise TraceError(
            f"the trace cannot be written to {_name(path)}: {reason}; choose another place"
        ) from error


def refuse_foreign(target: Path) -> None:
    """Raise TraceError when writing a bundle to `target` would destroy something that is not a bundle.

    Costs nothing, so a command can call it before it spends minutes on a run.
    """
    if not os.path.lexists(target):
        return
    if target.is_dir():
        names = set(os.listdir(target))
        if not _is_zip_name(target) and (not names or _is_bundle(names, target)):
            return
        strangers = sorted(names - set(FILES)) or ["something else than a trace"]
        found = f"a folder that holds {strangers[0]}" if names else "a folder"
    elif not _is_zip_name(target):
        found = "a file, and a trace that is not a .zip is written as a folder"
    elif target.stat().st_size == 0 or _holds_bundle(target):
        return
    else:
        found = "a file that is not a trace bundle"
    raise TraceError(f"{_name(target)} is {found}; it is left as it is, choose another name for the trace")


def _holds_bundle(target: Path) -> bool:
    try:
        with zipfile.ZipFile(target) as archive:
            return set(archive.namelist()) == set(FILES)
    except _ZIP_DAMAGE:
        return False


def _is_bundle(names: set[str], folder: Path) -> bool:
    """Nothing but a bundle's files, run.json among them."""
    return RUN_FILE in names and names <= set(FILES) and all((folder / name).is_file() for name in names)


def _is_zip_name(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _name(path: str | Path) -> str:
    return printable(str(path))


def _write_zip(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "x") as archive:
        for name, data in contents.items():
            member = zipfile.ZipInfo(name)  # dated 1980: the same trace gives the same file
            member.external_attr = 0o644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)


def _write_folder(path: Path, contents: dict[str, bytes]) -> None:
    path.mkdir()
    for name, data in contents.items():
        (path / name).write_bytes(data)


def _swap_folder(new: Path, target: Path) -> None:
    """Put `new` at `target`; a folder cannot be renamed onto another, so the old one steps aside first."""
    if not target.is_dir():
        os.rename(new, target)
        return
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    os.rename(target, aside)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(aside, target)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_bundle(path: str | Path, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> Trace:
    """Read a bundle folder or zip.

    Raises TraceError when a file is missing, too large, of another schema or malformed, with the file and row
    at fault. A hash that does not match, or rows of another run, are put in `Trace.problems`: the rows are
    readable, and `trace_check.check` reports them.
    """
    source = Path(path)
    try:
        if source.is_dir():
            contents = _read_folder(source, max_bytes)
        elif source.exists():
            contents = _read_zip(source, max_bytes)
        else:
            raise TraceError(f"there is no trace at {_name(path)}; give a bundle folder or a .zip file")
    except OSError as error:
        raise TraceError(f"{_name(path)} cannot be read: {error.strerror or error}") from error
    return decode(contents, max_rows=max_rows)


def _read_folder(source: Path, max_bytes: int) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = max_bytes
    for name in FILES:
        if not (source / name).is_file():
            raise _missing(name)
        with open(source / name, "rb") as file:
            contents[name] = file.read(left + 1)
        left -= len(contents[name])
        if left < 0:
            raise _too_large(max_bytes)
    return contents


def _read_zip(source: Path, max_bytes: int) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(source) as archive:
            _check_members(archive.infolist(), max_bytes)
            return {name: archive.read(name) for name in FILES}
    except _ZIP_DAMAGE as error:
        raise TraceError(
            f"{_name(source)} is neither a bundle folder nor a readable zip file: {printable(str(error))}"
        ) from error


def _check_members(members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    """Refuse names that could leave a folder, members given twice and sizes above the cap, before reading."""
    names = [member.orig_filename for member in members]
    for name in names:
        windows = PureWindowsPath(name)
        unsafe = name.startswith(("/", "\\")) or windows.drive or ".." in windows.parts or "\0" in name
        if unsafe or PurePosixPath(name).is_absolute():
            raise TraceError(f"the zip holds the unsafe name '{printable(name)}'; it is refused")
    for name in FILES:
        if names.count(name) > 1:
            raise TraceError(f"the zip holds {name} more than once; keep one")
        if name not in names:
            raise _missing(name)
    if sum(member.file_size for member in members) > max_bytes:
        raise _too_large(max_bytes)


def _missing(name: str) -> TraceError:
    return TraceError(f"{name} is missing; a trace bundle holds {', '.join(FILES)} at its top level")


def _too_large(max_bytes: int) -> TraceError:
    return TraceError(f"the trace is larger than {max_bytes / 2**20:g} MiB uncompressed; cut the run shorter")
