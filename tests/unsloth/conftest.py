"""These tests run in an environment of their own (tests/run.sh unsloth)."""

from tests.train.conftest import (  # noqa: F401
    _environment_of_a_module,
    _environment_of_a_test,
    _no_process_outlives_its_test,
)
