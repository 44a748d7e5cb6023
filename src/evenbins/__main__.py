"""`python -m evenbins`: the command line."""

from evenbins._command import main

if __name__ == "__main__":
    main()
