"""These tests run in an environment of their own (tests/run.sh unsloth)."""

from tests.train.conftest import _no_process_outlives_its_test  # noqa: F401
