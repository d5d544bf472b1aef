"""`python -m ackline.cli`."""

from ackline.cli import main

main()
