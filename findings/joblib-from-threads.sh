#!/usr/bin/env bash
# Guess: with the interpreter lock, threads may each call `joblib.Parallel` at any time: its processes are shared and locked.
# Found (joblib 1.6.0, CPython 3.11): the first calls at once may end in "AttributeError: 'MemmappingExecutor' object has
# no attribute '_temp_folder_manager'".  One thread makes the processes and then sets the attribute, outside the lock;
# another is handed them between.  One call before the threads start mends it.
# Why it matters: a server or a scheduler with a thread for each task loses a task once in a while, on a busy machine.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check joblib==1.6.0
cat > "$work/threads.py" <<'PY'
import sys
from multiprocessing.pool import ThreadPool
from threading import Barrier

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

ROUNDS, THREADS, before = int(sys.argv[1]), 8, "before" in sys.argv
together = Barrier(THREADS)
sys.setswitchinterval(1e-6)  # threads meet more often


def call(number):
    together.wait()
    try:
        return Parallel(2)([delayed(abs)(-number)]) == [number]
    except AttributeError as error:
        return str(error)


with ThreadPool(THREADS) as pool:
    for rounds in range(1, ROUNDS + 1):
        if before:
            Parallel(2)([delayed(abs)(0)])
        if fault := [each for each in pool.map(call, range(THREADS)) if each is not True]:
            sys.exit(f"round {rounds}: {fault[0]}")
        get_reusable_executor().shutdown()
PY
run() {  # minutes, as it takes some 3 to 300 rounds
    "$work/venv/bin/python" -W ignore "$work/threads.py" "$@" 2>&1
}
run 60 before
echo "joblib 1.6.0: one call before the threads start: 60 rounds without an error"
seen=$(run 1000) && { echo "threads alone: no error any more in 1000 rounds"; exit 1; }
echo "threads alone: $seen"
case $seen in *_temp_folder_manager*) ;; *) exit 1 ;; esac
