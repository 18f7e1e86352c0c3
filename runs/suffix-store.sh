#!/usr/bin/env bash
# What the suffix drafter costs with a million tokens in its store.
#
# Result (2026-11-30, 2-core virtual machine (Intel Xeon), other programs running, `chrt -f 50`, one thread;
# SmolLM2's ids of 6,800 prompts in texts of 400 tokens, depth 24), microseconds; two runs:
#
#                                        mean         median       p99          worst
#   a token, many at once                0.48 0.54    0.51 0.52    0.74 0.93    0.94 115
#   a token, alone                       2.07 1.92    1.98 1.89    3.72 3.10    33.5 11.2
#   a proposal, and its token twice      10.3 10.3    9.99 10.0    19.7 19.6    68.1 67.3
#
# 19.5 bytes per token. A proposal asks for 8 guesses; 98 % had some. It takes the new token into the request's own
# tree and into the store's, and looks both up. Goals: 5 us per token, 50 us per proposal.
#
# Arguments: JSONL files with a "prompt" or "turns" per line, of a million tokens together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/suffix_store.py "$@"
