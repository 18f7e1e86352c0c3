#!/usr/bin/env bash
# Drafters without weights on Spec-Bench's first turns: tokens per step, and decode speed against no speculation.
#
# Result: none on a quiet machine yet. LOG.md has a part of it beside other programs, and what the answers promise.
#
# Needs Spec-Bench's question.jsonl (or part of it, in its format) and a machine that does nothing else:
#   runs/tokens-per-step.sh question.jsonl --lines answers.jsonl
# A run that was interrupted goes on with what is not in answers.jsonl yet. `runs/replayed_drafts.py` tries other
# drafters on the answers in seconds, without the model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/tokens_per_step.py "$@"
