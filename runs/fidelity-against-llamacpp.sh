#!/usr/bin/env bash
# llama.cpp's arithmetic and ours by one measure: mean KL(float32 || engine) in nats and top-1 agreement at
# 4,000 tokens of greedy answers to chat prompts, against float32 of the model's weights and of the file's own.
#
# Result: not measured yet.
#
# Needs both in one environment, and a file of prompts, one {"prompt": ...} per line:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
#   runs/fidelity-against-llamacpp.sh prompts.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/fidelity_against_llamacpp.py "$@"
