"""`python -m evenbins`: the command line."""

from evenbins.cli import main

if __name__ == "__main__":
    main()
