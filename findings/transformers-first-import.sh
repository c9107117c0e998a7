#!/usr/bin/env bash
# Guess: two threads may import the same name from a package at once: one waits until the other has imported it.
# Found (transformers 5.24.0, Python 3.11): the other gets "ImportError: cannot import name", in 3 of 20 tries, and in more
# where threads take turns often, as here.  The package replaces itself in `sys.modules` while it is imported; the thread
# that waited gets what was replaced.
# Why it matters: workers that are threads fail, or count as failed, at their first task; one earlier import mends it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0
cat > "$work/both.py" <<'PY'
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

if sys.argv[1:]:
    import transformers
both = Barrier(2)
sys.setswitchinterval(1e-5)  # threads meet more often


def load():
    both.wait()
    from transformers import AutoConfig
    return AutoConfig


with ThreadPoolExecutor(2) as pool:
    errors = [each.exception() for each in [pool.submit(load), pool.submit(load)]]
sys.exit(any(isinstance(error, ImportError) for error in errors))
PY
failed() { local n=0; for _ in $(seq 12); do "$work/venv/bin/python" "$work/both.py" "$@" 2> /dev/null || n=$((n + 1)); done; echo $n; }
at_once=$(failed) after=$(failed imported)
echo "transformers 5.24.0: of 12 tries with two threads $at_once fail at the first import, $after after one in the main thread"
[ "$at_once" -gt 0 ] && [ "$after" -eq 0 ]
