"""Brings a model or a data set to the controller, once for all nodes, and shows the relay what there is to hand on."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from console import hub
from console.controller_action import Facts, OnController
from train.files import size_and_hash
from train.layout import TOKENIZER_FILES
from train.plan.model.sources import BaseModel, DataSource, TokenizerSource
from train.safe_stdio import plain


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        self._token = hub.token(known["hostvars"][known["inventory_hostname"]])
        if args.get("dataset"):
            return self._dataset(DataSource(**args["dataset"]))
        if args.get("tokenizer"):
            return self._tokenizer(TokenizerSource(**args["tokenizer"]))
        if args.get("listed"):
            return self._listed(BaseModel(**args["listed"]))
        return self._model(BaseModel(**args["model"]))

    def _model(self, model: BaseModel) -> Facts:
        if model.comes_from == "folder":
            return {"folder": model.folder, "files": {}}
        return {"folder": self._fetch(hub.fetch_words(model), model.repo)["folder"], "files": {}}

    def _listed(self, model: BaseModel) -> Facts:
        """The model's files and their hashes, for a machine that fetches them itself."""
        words = hub.fetch_words(model)
        return {"words": words, **self._fetch([*words, "--list"], model.repo)}

    def _tokenizer(self, model: TokenizerSource) -> Facts:
        """The folder and files of a model's tokenizer alone."""
        if not model.folder:
            words = ["fetch", "--model", str(model.hub), "--tokenizer"]
            return {"folder": self._fetch(words, model.repo)["folder"], "files": {}}
        folder = Path(model.folder)
        files = {path.name for pattern in TOKENIZER_FILES for path in folder.glob(pattern)}
        return {"folder": str(folder), "files": {name: size_and_hash(folder / name) for name in sorted(files)}}

    def _dataset(self, data: DataSource) -> Facts:
        """The folder and files of a data set: of a file beside others that file alone, of a folder its texts."""
        if data.folder:
            return {
                "folder": data.folder,
                "files": {name: size_and_hash(Path(data.folder, name)) for name in data.files},
            }
        if not data.file:
            fetched = self._fetch(["fetch", "--dataset", data.fetched_as], data.repo)
            return {"folder": fetched["folder"], "files": fetched["files"]}
        path = Path(data.file)
        return {"folder": str(path.parent), "files": {path.name: size_and_hash(path)}}

    def _fetch(self, words: list[str], repo: str) -> hub.Fetched:
        """Fetches in a program of its own, and shows its lines as they come. The token is in its environment alone."""
        token = self._token
        command = [sys.executable, "-m", "train", *words, "--json"]
        env = hub.environment() | token
        # Its answer goes to a file: that of many files is longer than a pipe holds, which nobody reads meanwhile.
        with (
            tempfile.TemporaryFile("w+") as printed,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.PIPE, text=True, env=env
            ) as process,
        ):
            assert process.stderr
            messages = []
            for line in process.stderr:
                messages.append(line)
                if " · " in line or "fetched again" in line:
                    self._display.display(plain(f"  {line.rstrip()}"))
            process.wait()
            printed.seek(0)
            return hub.answer(printed.read(), "".join(messages), repo, token)
