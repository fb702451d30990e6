"""``python -m cuwhy``."""

import sys

from cuwhy.cli.main import main

sys.exit(main())
