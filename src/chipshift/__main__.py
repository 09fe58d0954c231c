"""``python -m chipshift``."""

from chipshift.cli.app import main

main()
