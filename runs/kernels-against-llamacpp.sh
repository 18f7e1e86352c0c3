#!/usr/bin/env bash
# A target step of m rows: llama.cpp's weight types against specserve's classes, two threads each.
#
# Result: not measured on a quiet machine yet.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --types, --classes, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/kernels_against_llamacpp.py "$@"
