#!/usr/bin/env bash
# Greedy tokens per second of one stream over HTTP against llama.cpp's own loops on the same file, and of
# sixteen streams against one. No speculation.
#
# Result (2026-11-29, commit 442cb1d, llama-cpp-python 0.3.36 built for this machine, torch 2.13.0+cpu, 2-core
# AMD EPYC with AVX-512; other programs ran, so everything had real-time priority: chrt -f 50; --rounds 5):
#
#   tokens/s                   median   quartiles
#   llama.cpp                   100.3   95.8 to 109.4
#   llama.cpp, generate          92.8   92.7 to 101.7
#   specserve                   163.3   152.1 to 195.2
#   specserve, 16 streams       709.1   673.6 to 830.3
#   specserve / llama.cpp        1.70   1.26 to 1.95
#   many streams / one           4.34   3.90 to 4.88
#
# Provisional: the load was 10, llama.cpp's threads spin when a partner is late, and only its default attention
# (flash) was tried, so its side may be better on a quiet machine.
# A run before it (commit df89e95, 3 rounds): 1.56 (1.55 to 1.58), and 4.64 for many streams against one.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --output-len, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/serving_against_llamacpp.py "$@"
