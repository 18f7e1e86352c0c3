"""How byte-level BPE vocabularies cut text into words, by the name a GGUF file gives (`tokenizer.ggml.pre`).

The patterns are those of the checkpoints' own `tokenizer.json`; merges were learned inside such words, so
another cut gives other ids than the network was trained on. A file without a name is read as GPT-2's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = _ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Split:
    """`patterns` cut one after the other, each within the parts the one before left.

    `takes_whole_words`: a word that is a piece is taken as it is, whatever the merges say. `adds_begin`:
    such files mean a begin token when they do not say. `composes`: text is brought to Unicode form C first.
    """

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    adds_begin: bool = False
    composes: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*cuts, spelling])


_GPT2_SPLIT = Split((_GPT2,))
_DIGITS_SPLIT = Split((r"\p{N}", _GPT2))
_LLAMA3_SPLIT = Split((_LLAMA3,), takes_whole_words=True, adds_begin=True)
_QWEN2_SPLIT = Split((_QWEN2,), composes=True)

SPLITS = {
    "default": _GPT2_SPLIT,
    "gpt-2": _GPT2_SPLIT,
    "smollm": _DIGITS_SPLIT,
    "starcoder": _DIGITS_SPLIT,
    "llama-bpe": _LLAMA3_SPLIT,
    "llama3": _LLAMA3_SPLIT,
    "llama-v3": _LLAMA3_SPLIT,
    "qwen2": _QWEN2_SPLIT,
    "deepseek-r1-qwen": _QWEN2_SPLIT,
    "tekken": Split((_TEKKEN,), takes_whole_words=True, adds_begin=True),
}
