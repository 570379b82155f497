"""``python -m coevolve``: the command line, also under ``accelerate launch -m coevolve``."""

from coevolve.cli import main

if __name__ == "__main__":
    main()
