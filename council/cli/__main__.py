"""``python -m council.cli``: the command line, for where the command ``council`` is not on the path."""

from council.cli.app import main

if __name__ == "__main__":
    main()
