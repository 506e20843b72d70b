"""The peer: the script that a tutorial of PyTorch would have for these pictures, DistributedDataParallel and an even
split. The same model, pictures, optimizer and pictures per step as `train run`; writes when each step ended.

    torchrun … -m tests.bench.plain_ddp ROWS OUT MODEL WIDTH PICTURES_PER_STEP STEPS
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from train.plan.model.picture_facts import PictureFacts
from train.recipes.images.models import empty
from train.recipes.images.rows import open_pictures


def main(rows: str, out: str, family: str, *numbers: str) -> None:
    width, per_step, steps = map(int, numbers)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = open_pictures(Path(rows), augment=True)
    torch.manual_seed(0)
    facts = PictureFacts(family=family, width=width, image_size=data.row_length, classes=int(data.labels.max()) + 1)
    model = DistributedDataParallel(empty(facts).train())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    each = per_step // world
    file = Path(out)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as events:
        for step in range(1, steps + 1):
            since = time.time()
            at = (step - 1) * per_step + rank * each
            batch = data.batch([order[(at + number) % len(order)] for number in range(each)], at)
            pictures = torch.from_numpy(batch["pictures"]).float().div(255)
            optimizer.zero_grad()
            F.cross_entropy(model(pictures), torch.from_numpy(batch["labels"])).backward()
            optimizer.step()
            if rank == 0:
                line = {"event": "step", "step": step, "step_s": time.time() - since}
                events.write(json.dumps(line) + "\n")
                events.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
