"""``python -m dsgp.cli`` is ``dsgp``."""

from dsgp.cli import main

if __name__ == "__main__":
    main()
