"""python -m tests.train.has_built PARENT: the fork server, and what a library does once at its first model is done."""

import argparse
import sys

from train.cluster import forkserver

read_libraries = forkserver._import_libraries


def and_build() -> None:
    read_libraries()
    from train.models import backends  # noqa: PLC0415  not before peft and transformers
    from train.models.model_files import model_folder  # noqa: PLC0415

    backends.get("hf").build(backends.ModelSpec(folder=model_folder("tiny"), lora_r=4))


if __name__ == "__main__":
    forkserver._import_libraries = and_build
    sys.exit(forkserver.main(argparse.Namespace(parent=int(sys.argv[1]), cold=False)))
