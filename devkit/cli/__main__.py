"""`python -m devkit.cli`, the same as `devkit`."""

from devkit.cli import main

main()
