"""Between text and token ids: tokenizers, chat templates, and the incremental decoder of a stream."""
