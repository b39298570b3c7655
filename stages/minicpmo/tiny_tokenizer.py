"""A made-up tokenizer in the shape of the published one: the same ids, with syllables for words.

1. Bytes have the ids that they have in Qwen's tokenizers, and special tokens theirs, so recorded
   ids mean the same thing here.
2. The texts that are fed around sound are cut into the recorded ids: these few words have merges.
3. Each other id is a syllable word that follows from the id. It can be spoken, not read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

SIZE: Final = 151_748
FIRST_SPECIAL: Final = 151_643

_SPECIALS: Final[Mapping[int, str]] = MappingProxyType(
    {
        151643: "<|endoftext|>",
        151644: "<|im_start|>",
        151645: "<|im_end|>",
        151669: "<image>",
        151670: "</image>",
        151679: "<slice>",
        151680: "</slice>",
        151683: "<unit>",
        151684: "</unit>",
        151697: "<|audio_start|>",
        151698: "<|audio|>",
        151699: "<|audio_end|>",
        151700: "<|spk_bos|>",
        151701: "<|spk|>",
        151702: "<|spk_eos|>",
        151703: "<|tts_bos|>",
        151704: "<|tts_eos|>",
        151705: "<|listen|>",
        151706: "<|speak|>",
        151707: "<|interrupt|>",
        151708: "<|vad_start|>",
        151709: "<|vad_end|>",
        151716: "<|turn_bos|>",
        151717: "<|turn_eos|>",
        151718: "<|chunk_eos|>",
        151719: "<|chunk_bos|>",
        151720: "<|chunk_tts_bos|>",
        151721: "<|chunk_tts_eos|>",
        151722: "<|tts_pad|>",
    }
)
WORDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        271: "\n\n",
        624: ".\n",
        8948: "system",
        19702: "previous",
        50830: " Conversation",
        76509: "Streaming",
        85225: " Omni",
    }
)
"""The words of the default instructions and of a window's marker, by their published ids."""

_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aeiou"


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """What the tokenizer's files hold."""

    pieces: Mapping[str, int]
    """Byte-level spelling to id, of ordinary tokens."""
    merges: tuple[tuple[str, str], ...]
    specials: Mapping[int, str]


def tiny_vocabulary(texts: Mapping[int, str]) -> TinyVocabulary:
    """Return all tokens; `texts` names single ordinary ids.

    ValueError if a text is empty, stands for two ids, or is given to an id that has one already.
    """
    spelt = dict(enumerate(BYTE_LETTERS.values()))
    for number, text in (*WORDS.items(), *texts.items()):
        _claim(spelt, number, text)
    ids = {spelling: number for number, spelling in spelt.items()}
    if len(ids) != len(spelt):
        twice = sorted(number for number, spelling in spelt.items() if ids[spelling] != number)
        raise ValueError(f"tokens {twice} have the text of another token")
    merges = tuple(pair for text in WORDS.values() for pair in _chain(byte_level(text)))
    free = (number for number in range(FIRST_SPECIAL - 1, -1, -1) if number not in spelt)
    # A part of a word needs an id only because merges go through it.
    for left, right in merges:
        if left + right not in ids:
            ids[left + right] = next(free)
    for number in sorted(set(range(FIRST_SPECIAL)) - set(ids.values())):
        ids[_filler(number, ids)] = number
    return TinyVocabulary(
        pieces=dict(sorted(ids.items(), key=lambda item: item[1])),
        merges=tuple(dict.fromkeys(merges)),
        specials={
            number: _SPECIALS.get(number, f"<|extra_{number}|>")
            for number in range(FIRST_SPECIAL, SIZE)
        },
    )


def byte_level(text: str) -> str:
    """Return the spelling that byte-level pieces have in `vocab.json`: a letter for each byte."""
    return "".join(BYTE_LETTERS[byte] for byte in text.encode())


def _byte_letters() -> dict[int, str]:
    """Return byte to letter in the order of the ids: printable bytes stand for themselves."""
    printable = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    rest = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + place) for place, byte in enumerate(rest)
    }


BYTE_LETTERS: Final[Mapping[int, str]] = MappingProxyType(_byte_letters())
"""Byte to its letter in `vocab.json`, in the order of the ids."""


def _claim(spelt: dict[int, str], number: int, text: str) -> None:
    if not 0 <= number < FIRST_SPECIAL or not text:
        raise ValueError(f"token {number} is not an ordinary one, or its text is empty: {text!r}")
    spelling = byte_level(text)
    if spelt.setdefault(number, spelling) != spelling:
        raise ValueError(f"token {number} has a text of its own and can not be {text!r}")


def _chain(spelling: str) -> Iterator[tuple[str, str]]:
    """Yield the merges that build a word from its first letter on."""
    for end in range(1, len(spelling)):
        yield spelling[:end], spelling[end]


def _filler(number: int, taken: Mapping[str, int]) -> str:
    """Return three syllables that no other id has; two of three begin a word."""
    syllables = len(_CONSONANTS) * len(_VOWELS)
    # The factor shares none with the number of words: no two ids meet, neighbours differ.
    rest = number * 104_729 % syllables**3
    text = ""
    for _ in range(3):
        rest, place = divmod(rest, syllables)
        text += _CONSONANTS[place % len(_CONSONANTS)] + _VOWELS[place // len(_CONSONANTS)]
    spelling = byte_level(text if number % 3 == 0 else f" {text}")
    # A text that a caller gave may look like a filler; no other filler has a seventh letter.
    while spelling in taken:
        spelling += "x"
    return spelling
