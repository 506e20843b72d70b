"""What of vLLM's server Motley uses, played: answers that follow from the seed of their row alone, at a socket.

    python tests/support/fake_vllm.py -m vllm.entrypoints.cli.main serve BASE --uds=SOCKET …

It writes each adapter's hash into the file FAKE_VLLM_LOG.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import random
import socketserver
import sys
from pathlib import Path

DOOR = next(word.partition("=")[2] for word in sys.argv if word.startswith("--uds="))
LOADED: set[str] = set()


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/load_lora_adapter":
            file = Path(asked["lora_path"]) / "adapter_model.safetensors"
            assert not LOADED, "the adapter before it is still there: they would fill the memory"
            LOADED.add(asked["lora_name"])
            log({"loaded": asked["lora_name"], "sha256": hashlib.sha256(file.read_bytes()).hexdigest()})
        elif self.path == "/v1/unload_lora_adapter":
            LOADED.remove(asked["lora_name"])
        elif os.environ.get("FAKE_VLLM_REFUSES"):
            return self.answer(400, {"error": "no"})
        else:
            assert asked["model"] in LOADED, "an adapter that is not there"
            return self.stream(asked) if asked.get("stream") else self.answer(200, completion(asked))
        return self.answer(200, {})

    def stream(self, asked: dict[str, object]) -> None:
        self.send_response(200)
        self.end_headers()
        for token in completion(asked)["choices"][0]["token_ids"]:  # type: ignore[index]
            self.wfile.write(f"data: {json.dumps({'choices': [{'token_ids': [token]}]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, status: int, said: dict[str, object]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "motley"

    def log_message(self, *_: object) -> None: ...


def completion(asked: dict[str, object]) -> dict[str, object]:
    chance = random.Random(str(asked.get("seed", asked["prompt"])))
    most, ends = int(str(asked["max_tokens"])), list(asked.get("stop_token_ids", []))  # type: ignore[call-overload]
    tokens = [chance.randrange(3, 200) for _ in range(chance.randrange(1, most) if ends else most)] + ends[:1]
    return {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": [-1.0] * len(tokens)}}]}


def log(entry: dict[str, str]) -> None:
    with Path(os.environ["FAKE_VLLM_LOG"]).open("a") as file:
        file.write(json.dumps(entry) + "\n")


class Door(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def get_request(self):  # type: ignore[no-untyped-def]
        line, _ = super().get_request()
        return line, ("motley", 0)


if __name__ == "__main__":
    with Door(DOOR, Answers) as door:
        door.serve_forever()
