"""``python -m syntony`` is the command line."""

from syntony.cli import main

if __name__ == "__main__":
    main()
