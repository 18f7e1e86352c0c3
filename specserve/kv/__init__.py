"""The paged cache: which page holds what (`pages`, `prefix`), and the tensors behind it (`pool`)."""
