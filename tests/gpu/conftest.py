"""Tests that need a GPU: `make test-gpu` runs them, with EVENBINS_GPU; `make test` collects none of them."""

import os

collect_ignore_glob = [] if os.environ.get("EVENBINS_GPU") else ["test_*.py"]
