#!/usr/bin/env bash
# llama.cpp's arithmetic and ours by one measure: mean KL(float32 || engine) in nats and top-1 agreement at
# 4,000 tokens of greedy answers to chat prompts, against float32 of the model's weights and of the file's own.
#
# Result (2026-11-29, commit 904af5f, llama-cpp-python 0.3.36, torch 2.13.0+cpu, 2-core AMD EPYC with AVX-512,
# SmolLM2-135M's embedded Q4_1 file, 39 prompts; 10 minutes on the busy machine):
#
#   weights  arithmetic                against       mean KL    p99 KL    top-1
#   file     llama.cpp                 the model    2.39e-03  1.83e-02  97.95 %
#   file     specserve                 the model    1.11e-03  8.13e-03  98.70 %
#   Q8_0     llama.cpp                 the model    3.54e-03  2.67e-02  97.62 %
#   Q8_0     llama.cpp                 itself       2.30e-03  1.63e-02  98.05 %
#   Q8_0     specserve                 the model    1.16e-03  8.64e-03  98.85 %
#   Q8_0     specserve                 itself       1.44e-06  1.24e-05  99.95 %
#   Q4_0     llama.cpp                 the model    2.42e-01  1.52e+00  81.30 %
#   Q4_0     llama.cpp                 itself       2.73e-03  1.95e-02  97.60 %
#   Q4_0     specserve                 the model    2.41e-01  1.49e+00  81.62 %
#   Q4_0     specserve                 itself       1.29e-03  9.00e-03  98.22 %
#   F16      llama.cpp                 the model    3.40e-06  3.09e-05  99.92 %
#   F16      llama.cpp                 itself       1.91e-06  2.20e-05  99.98 %
#   F32      llama.cpp, float32 cache  the model    2.62e-11  1.92e-10 100.00 %
#   F32      llama.cpp, float32 cache  itself       2.62e-11  1.92e-10 100.00 %
#   F32      llama.cpp                 the model    7.24e-07  9.26e-06 100.00 %
#   F32      llama.cpp                 itself       7.24e-07  9.26e-06 100.00 %
#
# "The model" is float32 of the weights as they came, "itself" float32 of the weights in that file.
#
# Needs both in one environment, and a file of prompts, one {"prompt": ...} per line:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
#   runs/fidelity-against-llamacpp.sh prompts.jsonl
# On a machine that does other things too say OMP_WAIT_POLICY=passive: llama.cpp's threads spin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/fidelity_against_llamacpp.py "$@"
