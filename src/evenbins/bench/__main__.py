"""`python -m evenbins.bench filters`: the benchmarks without the command `evenbins`."""

import sys

from evenbins.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])
