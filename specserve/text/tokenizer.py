"""A tokenizer: text to ids and back, exact bytes of every token, and what a chat template needs.

tokenizer = Tokenizer.load(Path("model.gguf"))
tokenizer.decode(tokenizer.encode("Hello"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from specserve.errors import InvalidRequest, ModelError
from specserve.text.bounds import Reach, reach
from specserve.text.folder import load_folder
from specserve.text.gguf_vocabulary import load_gguf
from specserve.text.parts import Parts
from specserve.text.pieces import read_decoder, strip_leading


class Tokenizer:
    """Immutable once built, so worker threads may encode while the engine's thread decodes.

    Decoding reads the bytes of all tokens as UTF-8, malformed ones as U+FFFD. It equals the decoding of
    the `tokenizers` library wherever that is well-formed; a broken run of byte pieces loses only the broken
    characters here, and all of its characters there.
    """

    def __init__(self, parts: Parts, source: str = "tokenizer") -> None:
        self._backend = parts.backend
        self._pieces = read_decoder(parts.backend, source)
        self._bytes: dict[int, bytes] = {}  # filled as asked: a large vocabulary would cost a second at start
        added = parts.backend.get_added_tokens_decoder()
        self.all_special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.vocab_size: int = parts.backend.get_vocab_size(with_added_tokens=True)
        self.named_tokens: Mapping[str, str] = parts.named
        self.chat_template = parts.chat_template
        self.bos_token_id = self._id_of("bos_token")
        self.eos_token_id = self._id_of("eos_token")

    @classmethod
    def load(cls, path: Path, *, trust: bool = False) -> Tokenizer:
        """Load from a folder or a `.gguf` file, without network; `trust` allows code from the folder.

        Raises `ModelError` naming the file and what is wrong with it.
        """
        if path.is_dir():
            return cls(load_folder(path, trust=trust), str(path))
        if not path.is_file():
            raise ModelError(f"{path}: no such file or folder.")
        if path.suffix != ".gguf":
            raise ModelError(f"{path}: a tokenizer is loaded from a folder or a .gguf file.")
        return cls(load_gguf(path), str(path))

    @property
    def leading_spaces(self) -> int:
        """How many spaces a text loses at its very start when decoded (SentencePiece: 1)."""
        return self._pieces.leading_spaces

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`. Special tokens written in it count as such. Raises `InvalidRequest`."""
        try:  # a batch, because only for batches the library lets other threads run meanwhile
            [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeError) as error:  # JSON can carry lone surrogates, UTF-8 cannot
            raise InvalidRequest("Text must be valid Unicode, without lone surrogates.", "prompt") from error
        ids: list[int] = encoding.ids
        return ids

    def surely_exceeds(self, text: str, num_tokens: int) -> bool:
        """Whether `text` certainly has more tokens than that, told without tokenising it."""
        if len(text) <= num_tokens:  # only a long text is worth reading the vocabulary for
            return False
        return self._reach is not None and self._reach.surely_exceeds(text, num_tokens)

    def beginning(self, text: str, num_tokens: int) -> str:
        """Enough of `text` for so many tokens; all of it where nothing bounds what one stands for."""
        if len(text) <= num_tokens or self._reach is None:
            return text
        return text[: num_tokens * self._reach.longest]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`, read as a whole text: it loses the leading spaces."""
        skipped = self.all_special_ids if skip_special_tokens else frozenset()
        data = b"".join([self.token_bytes(token_id) for token_id in ids if token_id not in skipped])
        return strip_leading(data, self.leading_spaces).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes of one token; empty for an id outside the vocabulary (models pad theirs)."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._bytes_of(token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """Printable form of one token, U+FFFD for each part of a character."""
        return self.token_bytes(token_id).decode(errors="replace")

    @cached_property
    def _reach(self) -> Reach | None:
        return reach(self._backend)

    def _bytes_of(self, token_id: int) -> bytes:
        if not 0 <= token_id < 2**32:  # the library's ids are unsigned 32 bit
            return b""
        piece = self._backend.id_to_token(token_id)
        return b"" if piece is None else self._pieces.to_bytes(piece)

    def _id_of(self, name: str) -> int | None:
        token = self.named_tokens.get(name)
        token_id: int | None = None if token is None else self._backend.token_to_id(token)
        return token_id
