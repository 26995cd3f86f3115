"""``python -m dsgp``: the command ``dsgp``, where its script is not on the path."""

from dsgp.cli import main

if __name__ == "__main__":
    main()
