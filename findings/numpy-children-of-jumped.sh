#!/usr/bin/env bash
# Guess: all that a seeded generator gives follows from its seed: after `jumped`, or with its state restored, `spawn` gives
# the children that it gave before.
# Found (numpy 2.4.6):
#  1. children of a generator that was jumped are other ones in each process, as `jumped` takes a new, random seed
#     sequence.  What the generator itself draws is reproducible, which hides it.
#  2. a state that is restored, as from a checkpoint, brings neither the seed sequence nor the number of children so far:
#     a generator made from another seed has that seed's children, and one from the same seed gives its first child twice.
# Why it matters: simulations cannot be repeated, and replicates after a checkpoint use random numbers of earlier ones.
# Pickling a generator keeps both.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
cat > "$work/jumped.py" <<'PY'
import numpy as np

for kind in (np.random.PCG64, np.random.Philox, np.random.MT19937):
    generator = np.random.Generator(kind(1).jumped(3))
    print(kind.__name__, generator.random(), generator.spawn(1)[0].random())
PY
cat > "$work/restored.py" <<'PY'
import pickle

import numpy as np


def restored(seed, state):
    generator = np.random.default_rng(seed)
    generator.bit_generator.state = state
    return generator


rng = np.random.default_rng(7)
first = rng.spawn(1)[0].random()
state, pickled, number = rng.bit_generator.state, pickle.dumps(rng), rng.random()
second = rng.spawn(1)[0].random()
same, other, whole = restored(7, state), restored(8, state), pickle.loads(pickled)
assert same.random() == other.random() == whole.random() == number  # their own numbers go on
assert whole.spawn(1)[0].random() == second  # so it should be
assert same.spawn(1)[0].random() == first  # a repetition
assert other.spawn(1)[0].random() == np.random.default_rng(8).spawn(1)[0].random()
print("state restored: the next child is the first again, or that of the seed of the new generator")
PY
once=$("$work/venv/bin/python" "$work/jumped.py") again=$("$work/venv/bin/python" "$work/jumped.py")
echo "numpy 2.4.6, after a jump: kind, next number, first number of its child; two processes"
printf '%s\n%s\n' "$once" "$again"
paste -d' ' <(echo "$once") <(echo "$again") | while read -r kind own child _ own_again child_again; do
    [ "$own" = "$own_again" ] && [ "$child" != "$child_again" ] || { echo "$kind: otherwise now"; exit 1; }
done
"$work/venv/bin/python" "$work/restored.py"
