"""The loop: plan, forward, verify, commit, observe, settle, propose. The only place where drafting and
verifying meet. Read `engine.py` first."""
