"""Reading a model with transformers so that nothing missing goes unnoticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import SourceError

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase


def read_model(name: str, **place: Any) -> PreTrainedModel:
    """`AutoModelForCausalLM.from_pretrained(**place)`, refusing weights that transformers would make up.

    Raises SourceError, with `name` in its sentence, when the model cannot be read or lacks weights.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM  # its stubs do not know output_loading_info
    try:
        with only_errors_logged():
            model, info = loader.from_pretrained(
                **place, output_loading_info=True, local_files_only=True, ignore_mismatched_sizes=True
            )
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise SourceError(f"{name} cannot be loaded: {first_line(error)}") from error
    lost = [str(key) for key in info["missing_keys"]] + [str(key[0]) for key in info["mismatched_keys"]]
    if lost:
        raise SourceError(
            f"{name} is incomplete: {len(lost)} of the weights its config asks for are missing or of another "
            f"shape, the first being {min(lost)}; fetch it again"
        )
    checked: PreTrainedModel = model
    return checked


def read_tokenizer(name: str, **place: Any) -> PreTrainedTokenizerBase:
    """`AutoTokenizer.from_pretrained(**place)`. Raises SourceError."""
    from transformers import AutoTokenizer

    try:
        with only_errors_logged():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**place, local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exception for a damaged tokenizer.json
        raise SourceError(f"{name} has no tokenizer that can be read: {first_line(error)}") from error
    return tokenizer


@contextmanager
def only_errors_logged() -> Iterator[None]:
    """Keep transformers' reports off the terminal: what they warn of is refused in one sentence. Its progress
    bars are drawn on a terminal only.
    """
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """An error's first line, for one-sentence messages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
