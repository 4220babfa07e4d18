"""`python -m dibs` is `dibs`."""

from dibs.cli.main import main

main()
