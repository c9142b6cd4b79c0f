"""`python -m ragdb`: the command line."""

from ragdb.cli.main import main

if __name__ == "__main__":
    main()
