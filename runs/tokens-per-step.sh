#!/usr/bin/env bash
# Drafters without weights on Spec-Bench's first turns: tokens per step, and decode speed against no speculation.
#
# Result (2026-12-01, 2-core virtual machine (Intel Xeon), nothing beside, 3904ffe), mean of six groups, tokens per
# step and decode speed: int8 suffix 1.93 / 1.45, ngram 2-4 k=3 1.59 / 1.38, k=8 1.77 / 1.26, default chain 1.98 / 1.44;
# bfloat16 suffix 1.90 / 1.59, ngram k=3 1.58 / 1.46; the file's own class suffix 1.89 / 1.15, ngram k=3 1.58 / 1.21.
# All groups: docs/choose-a-drafter.md.
#
# Needs Spec-Bench's question.jsonl (or part of it, in its format) and a machine that does nothing else:
#   runs/tokens-per-step.sh question.jsonl --lines answers.jsonl
# A run that was interrupted goes on with what is not in answers.jsonl yet. `runs/replayed_drafts.py` tries other
# drafters on the answers in seconds, without the model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/tokens_per_step.py "$@"
