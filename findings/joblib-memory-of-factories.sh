#!/usr/bin/env bash
# Guess: a function that joblib.Memory caches gets its own results back, and a change of the program is seen.
# Found (joblib 1.6.0): results are kept by the function's name, its text and its arguments.  What it takes from outside is not
# looked at: functions that one factory makes for two bandwidths share results, the first one's, and a constant of the
# module that is changed between two runs changes nothing.  There is no warning.  A default argument is as guessed.
# Documented: it is for pure functions; the pitfalls that are named are names, lambdas and methods, not these.
# Why it matters: a study that compares two bandwidths compares one with itself.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check joblib==1.6.0
cat > "$work/study.py" <<'PY'
import sys
import warnings

import joblib

warnings.simplefilter("error")
memory = joblib.Memory(sys.argv[1], verbose=0)
NOISE = 1.0


def smoother(bandwidth):
    @memory.cache
    def estimate(x):
        return x * bandwidth

    return estimate


def with_default(bandwidth):
    @memory.cache
    def safe(x, bandwidth=bandwidth):
        return x * bandwidth

    return safe


@memory.cache
def sample(size):
    return [NOISE] * size


narrow, wide = smoother(1.0), smoother(2.0)
print([narrow(10), wide(10)], [with_default(1.0)(10), with_default(2.0)(10)], sample(2))
PY
cd "$work"
first=$(venv/bin/python study.py "$work/kept")
sed -i 's/^NOISE = 1.0/NOISE = 3.0/' study.py
second=$(venv/bin/python study.py "$work/kept")
rm -r "$work/kept"; sed -i 's/smoother(1.0), smoother(2.0)/smoother(2.0), smoother(1.0)/' study.py
fresh=$(venv/bin/python study.py "$work/kept")
printf '%s\n' "bandwidths 1 and 2; noise 1: $first" "noise 3: $second" "bandwidths 2 and 1, nothing kept: $fresh"
test "$first" = "[10.0, 10.0] [10.0, 20.0] [1.0, 1.0]"
test "$second" = "$first"
test "$fresh" = "[20.0, 20.0] [10.0, 20.0] [3.0, 3.0]"
