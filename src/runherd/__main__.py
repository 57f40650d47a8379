"""``python -m runherd``: the same as the ``runherd`` command."""

from runherd.cli.main import main

main()
