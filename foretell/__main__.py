"""`python -m foretell` is the `foretell` command."""

import sys

from foretell.cli.main import main

sys.exit(main())
