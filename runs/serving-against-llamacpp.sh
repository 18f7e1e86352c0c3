#!/usr/bin/env bash
# Greedy tokens per second of one stream over HTTP against llama.cpp's own loops on the same file, and of
# sixteen streams against one. No speculation.
#
# Result: not measured on a quiet machine yet.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --output-len, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/serving_against_llamacpp.py "$@"
