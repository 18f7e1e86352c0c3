"""Between raw logits and the verdict: every sampling parameter on every row, and log-probabilities."""
