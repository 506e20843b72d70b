"""The peer: a loop around torchft's Manager as its documentation shows, each node a group of one process, `tiny`
with LoRA. Not its DistributedDataParallel, which ends a process whose exchange fails (ddp.py: `assert fut._fut`).

    TORCHFT_LIGHTHOUSE=http://HEAD:29510 python -m tests.bench.plain_torchft CONFIG OWN-ADDRESS
    python -m tests.bench.plain_torchft lighthouse        on the head: who is there

Writes when each step was committed and by how many, as `train run` does. A node that returns takes the weights from
another one, over the process group as in its train_ddp.py: its other way asks for them by host name. Nothing is kept
on disk, as torchft leaves that to the script; so a lost lighthouse is
waited for: if all ended, they would begin at step 0.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torchft import Manager, ProcessGroupGloo
from torchft.checkpointing.pg_transport import PGTransport
from torchft.coordination import LighthouseServer

from train.data.rows import open_rows
from train.models.backends import LossModule, ModelSpec, get, to_tensors
from train.models.model_files import model_folder

LIGHTHOUSE_PORT = 29510


def lighthouse() -> None:
    server = LighthouseServer(f"[::]:{LIGHTHOUSE_PORT}", 2, join_timeout_ms=5000, quorum_tick_ms=100)
    print(server.address(), flush=True)
    while True:
        time.sleep(60)


def main(config: str, own: str) -> None:
    settings = json.loads(Path(config).read_text())
    store = TCPStore(own, 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(0)
    hf, rows, per_step = get("hf"), open_rows(settings["dataset"]), settings["rows_per_step"]
    module = LossModule(
        hf.build(ModelSpec(folder=model_folder(settings["model"]), lora_r=settings["lora_r"])), hf.loss_sum
    )
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    adamw = torch.optim.AdamW(trained, lr=settings["learning_rate"])

    def state() -> dict[str, Any]:
        return {"weights": [weight.detach() for weight in trained], "adamw": adamw.state_dict()}

    def load(found: dict[str, Any]) -> None:
        with torch.no_grad():
            for weight, value in zip(trained, found["weights"], strict=True):
                weight.copy_(value)
        adamw.load_state_dict(found["adamw"])

    group = ProcessGroupGloo(timeout=timedelta(seconds=settings["timeout_s"]))
    manager = Manager(
        pg=group, load_state_dict=load, state_dict=state, min_replica_size=2, timeout=timedelta(seconds=30),
        connect_timeout=timedelta(seconds=10), quorum_timeout=timedelta(minutes=10), quorum_retries=100,
        checkpoint_transport=PGTransport(group, timeout=timedelta(seconds=10), device=torch.device("cpu")),
        rank=0, world_size=1, store_addr=own, store_port=store.port, hostname=own, replica_id=os.environ["MOTLEY_NODE"],
    )  # fmt: skip
    log = Path(settings["home"]) / "logs/runs" / settings["run"] / "events.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    quorum = -1
    with log.open("a") as events:
        while True:
            manager.start_quorum()
            adamw.zero_grad()
            share = max(1, per_step // max(1, manager.num_participants()))
            first = manager.current_step() * per_step + (manager.participating_rank() or 0) * share
            batch = to_tensors(rows.batch([at % len(rows) for at in range(first, first + share)]), "cpu")
            (module(batch) / share).backward()
            gradients = [weight.grad for weight in trained]
            bucket = parameters_to_vector(gradients)
            manager.allreduce(bucket).wait()
            vector_to_parameters(bucket, gradients)
            if not manager.should_commit():
                continue  # somebody was lost in it: nobody has it
            adamw.step()
            step = manager.current_step()
            nodes: dict[str, Any] = {str(node): {} for node in range(manager.num_participants())}
            now = {"time": time.time(), "step": step, "nodes": nodes}
            if manager._quorum_id != quorum:
                quorum = manager._quorum_id
                events.write(json.dumps(now | {"event": "start", "step": step - 1}) + "\n")
            events.write(json.dumps(now | {"event": "step"}) + "\n")
            events.flush()


if __name__ == "__main__":
    lighthouse() if sys.argv[1:] == ["lighthouse"] else main(*sys.argv[1:])
