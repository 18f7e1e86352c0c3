#!/usr/bin/env bash
# Greedy tokens per second of one stream over HTTP against llama.cpp's own loops on the same file, and of
# sixteen streams against one. No speculation.
#
# Result (2026-11-29, commit 6c36a4a, llama-cpp-python 0.3.36 built for this machine, torch 2.13.0+cpu, 2-core
# AMD EPYC with AVX-512, nothing beside it; --rounds 9):
#
#   tokens/s                   median   quartiles
#   llama.cpp                   113.7   105.3 to 119.2
#   llama.cpp, generate         103.3    94.3 to 112.2
#   specserve                   210.4   193.1 to 222.8
#   specserve, 16 streams       827.4   777.6 to 895.1
#   specserve / llama.cpp        1.78   (1.62 to 2.14: all rounds)
#   many streams / one           4.26   (3.24 to 4.47)
#
# At the commit before it, where waiting threads yielded (LOG.md): 157.9 tokens/s, 1.59 times llama.cpp.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --output-len, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/serving_against_llamacpp.py "$@"
