"""Token ids to bytes for both kinds of tokenizer, and text that streams without broken characters."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from toys import EOS_ID, toy_tokenizer
from viasd_core.text import OutputText, TokenBytes, display, incomplete_tail

TEXTS = [
    "the thin man",
    "  two  spaces\n\ttab",
    "naïve café",
    "한국어",
    "עברית",
    "👩\u200d👩\u200d👧!",
    "a\x00b",
]


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """Pieces with a word marker and single bytes to fall back on, as Llama 2 has them."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", "t", "h", "e", "a", "n", "th", "the", "\u2581the", "\u2581a"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "a")]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in pieces[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def spelled(tokenizer: PreTrainedTokenizerFast, text: str) -> bytes:
    spell = TokenBytes(tokenizer)
    return b"".join(spell[token] for token in tokenizer(text, add_special_tokens=False).input_ids)


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_spell_exactly_the_text_they_encode(text: str) -> None:
    assert spelled(toy_tokenizer(), text) == text.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_byte_fallback_tokens_spell_the_text_behind_its_word_marker(text: str) -> None:
    """Every space survives, also the one the tokenizer puts in front."""
    assert spelled(sentencepiece_tokenizer(), text) == b" " + text.encode()


def test_a_leading_space_is_not_lost_when_a_token_is_spelled_alone() -> None:
    """`decode([id])` would drop it."""
    tokenizer = sentencepiece_tokenizer()
    spell = TokenBytes(tokenizer)
    the = tokenizer.convert_tokens_to_ids("\u2581the")
    assert isinstance(the, int) and spell[the] == b" the"


def test_every_byte_has_a_token_in_both_tokenizers() -> None:
    for tokenizer in (toy_tokenizer(), sentencepiece_tokenizer()):
        spell = TokenBytes(tokenizer)
        assert {bytes([byte]) for byte in range(256)} <= {spell[token] for token in range(len(tokenizer))}


def test_special_tokens_are_known_and_spelled_by_name() -> None:
    spell = TokenBytes(toy_tokenizer())
    assert spell[EOS_ID] == b"<|im_end|>" and EOS_ID in spell.special_ids
    assert TokenBytes(sentencepiece_tokenizer()).special_ids == {0, 1, 2}


def test_an_added_token_with_accents_is_not_taken_for_byte_letters() -> None:
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens([AddedToken("né", special=False)])
    spell = TokenBytes(tokenizer)
    token = tokenizer.convert_tokens_to_ids("né")
    assert isinstance(token, int)
    assert spell[token] == "né".encode() and token not in spell.special_ids


def test_a_padding_id_that_no_token_has_spells_nothing() -> None:
    assert TokenBytes(toy_tokenizer())[5000] == b""


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"", 0), (b"abc", 0), ("é".encode(), 0), ("é".encode()[:1], 1), ("😀".encode()[:3], 3),
     ("a😀".encode()[:2], 1), (b"\xff", 0), (b"\x80\x80", 0), ("😀".encode()[:2] + b"a", 0)],
)  # fmt: skip
def test_only_a_character_that_can_still_be_finished_is_pending(data: bytes, count: int) -> None:
    assert incomplete_tail(data) == count


def test_a_split_character_is_shown_with_its_last_token() -> None:
    first, second = "😀".encode()[:1], "😀".encode()[1:]
    text, pending = display(b"", b"a" + first)
    assert (text, pending) == ("a", first)
    assert display(pending, second + b"b") == ("😀b", b"")


def test_bytes_that_can_never_become_text_show_as_a_replacement_at_once() -> None:
    assert display(b"\xf0\x9f", b"a") == ("\ufffda", b"")


@pytest.mark.parametrize("text", TEXTS)
def test_streaming_byte_by_byte_gives_the_text_without_a_replacement_character(text: str) -> None:
    output, pieces = OutputText(), []
    for byte in text.encode():
        output.append(bytes([byte]))
        piece, dropped = output.stream(final=False)
        assert dropped == 0 and "\ufffd" not in piece
        pieces.append(piece)
    assert "".join(pieces) + output.stream(final=True)[0] == text


def test_a_tail_that_may_begin_a_stop_string_waits_until_it_cannot() -> None:
    output = OutputText((b"STOP",))
    output.append(b"go S")
    assert output.stream(final=False) == ("go ", 0)
    output.append(b"T")
    assert output.stream(final=False) == ("", 0)
    output.append(b"ART")
    assert output.stream(final=False) == ("START", 0)


def test_what_waited_is_shown_at_the_end() -> None:
    output = OutputText((b"STOP",))
    output.append(b"ST")
    assert output.stream(final=False) == ("", 0)
    assert output.stream(final=True) == ("ST", 0)


def test_an_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    output = OutputText()
    output.append(b"a\xf0\x9f")
    assert output.stream(final=False) == ("a", 0)
    assert output.stream(final=True) == ("\ufffd", 0)


def test_text_taken_back_is_counted_in_characters_not_bytes() -> None:
    output = OutputText()
    for piece in ("a", "é", "😀x"):
        output.append(piece.encode())
    assert output.stream(final=False) == ("aé😀x", 0)
    output.truncate(1)
    output.append("ü".encode())
    assert output.stream(final=False) == ("ü", 3)


def test_text_taken_back_and_written_again_the_same_is_not_dropped() -> None:
    output = OutputText()
    output.append(b"ab")
    output.stream(final=False)
    output.truncate(0)
    output.append(b"abc")
    assert output.stream(final=False) == ("c", 0)


def test_a_replaced_character_that_shares_its_first_byte_is_taken_back_whole() -> None:
    """é and è begin with the same byte; half a character cannot stay."""
    output = OutputText()
    output.append("é".encode())
    assert output.stream(final=False) == ("é", 0)
    output.truncate(0)
    output.append("è".encode())
    assert output.stream(final=False) == ("è", 1)


def test_a_trimmed_stop_string_leaves_the_bytes_in_front_of_it() -> None:
    output = OutputText((b"END",))
    output.append(b"a")
    output.append(b"bEND")
    output.trim(1, b"b")
    assert output.stream(final=True) == ("ab", 0)
    assert output.pending == b""
