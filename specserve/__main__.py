"""`python -m specserve` is the command `specserve`."""

import sys

from specserve.cli import main

sys.exit(main())
