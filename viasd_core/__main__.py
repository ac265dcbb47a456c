"""`python -m viasd_core COMMAND ...`"""

import sys

from .cli.main import main

sys.exit(main())
