"""``python -m simstudy``: the command line, for jobs that know the interpreter but not the PATH.

Imports cli only.
"""

from simstudy.cli import main

main()
