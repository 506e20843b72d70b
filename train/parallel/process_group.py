"""Who takes part in a run, and how they exchange small things before and beside the gradients.

`join` only opens the store that every launcher provides (torchrun or plain environment variables). The process group
proper starts later, by `start_group`: models must be built before it (unsloth turns its compile cache collective
otherwise). What is exchanged is JSON and plain numbers; nothing is unpickled from the network.

The store answers anybody who reaches its port, and lists its keys to them. So a value of ours carries a MAC over its
name and itself, and what has none counts as not written. The key is of one generation, and comes from the agent
(train/cluster/start_workers.py). Under another launcher it is empty: there whoever reaches the port takes part.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType
from torch.profiler import record_function

from train.errors import CheckFailed, PeerFailed
from train.parallel.peers import Peers
from train.parallel.worker_orders import Orders
from train.runlog.trace import FIGURES

FIRST_EXCHANGE_S = 20.0
WRONG_SUM, NO_END = "do not sum up rightly", "have exchanged nothing within {:.0f} s"
FAILED = "motley/failed"
PART_BYTES = 64 << 20
ABANDONED: list[Any] = []
BY_GROUP = ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg", "pg_coalesce_state")
"""The names by which torch keeps what it knows of its groups."""
HINT = " (timeout_s); fix: look at that process first; if it is only slow, raise timeout_s"


class ExchangeFailedError(PeerFailed):
    """Half an exchange is in the gradients or weights of some rank."""


@dataclass
class World:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    node: str = ""
    store: Any = field(default_factory=dist.HashStore, repr=False)
    """Where all read what each writes; alone, in its own memory."""
    timeout: timedelta = timedelta(seconds=300)
    """The limit for connecting; and for every exchange, where no agent watches."""
    key: bytes = field(default=b"", repr=False)
    orders: Orders | None = None
    """What its agent tells, where this process may stay while the group changes."""
    peers: Peers | None = field(default=None, repr=False)
    """Who of the others has ended, where no agent says so."""
    nccl: Any = field(default=None, repr=False)
    """How the cards exchange, where all ranks have one."""
    _gathers: int = field(default=0, repr=False)

    @property
    def speaks(self) -> bool:
        """Whether this process reports to the person watching: one of all does."""
        return self.rank == 0

    @property
    def writes(self) -> bool:
        """Whether this process writes its node's files: one of each node does."""
        return self.local_rank == 0

    @property
    def patience(self) -> timedelta:
        """How long a peer may compute while this one waits. Agents tell a lost machine by its heartbeat and a hung one
        by their stall limit: waiting proves nothing, as where a base is streamed to a small card beside a fast one."""
        return timedelta(days=7) if os.environ.get("MOTLEY_AGENT") else self.timeout

    def gather(self, value: Any) -> list[Any]:
        """The value of each rank, in rank order; also a barrier. A rank that failed meanwhile ends it for all."""
        if self.size == 1:
            return [json.loads(json.dumps(value))]
        self._gathers += 1
        keys = [f"motley/{self._gathers}/{rank}" for rank in range(self.size)]
        self.write(keys[self.rank], json.dumps(value))
        values = [json.loads(text) for text in self._wait(keys)]
        # Rank 0 may be the host of the store: it continues, or leaves, only when everyone has read.
        self.write(f"{keys[self.rank]}/read", "")
        if self.rank == 0:
            self._wait([f"{key}/read" for key in keys])
        return values

    def _wait(self, names: list[str]) -> list[str]:
        deadline = time.monotonic() + self.patience.total_seconds()
        while not self.store.check(names) or None in (texts := [self.read(name) for name in names]):
            self.require_group()
            if failed := self.read(FAILED):
                raise PeerFailed(failed)
            if time.monotonic() > deadline:
                missing = [name.split("/")[2] for name in names if self.read(name) is None]
                raise PeerFailed(
                    f"rank {', '.join(missing)} did not answer for {self.patience.total_seconds():.0f} s{HINT}"
                )
            time.sleep(0.002)
        return [text for text in texts if text is not None]

    def new_name(self, kind: str) -> str:
        """A name for something that all ranks share, the same on all of them: each asks for it as often."""
        self._gathers += 1
        return f"motley/{kind}/{self._gathers}"

    def change(self, name: str, alter: Callable[[Any], Any]) -> Any:
        """Alters what all share under this name, one rank at a time; `alter` gets None where nothing is there yet, and
        is asked again where another was faster. Gives back what it has become."""
        while True:
            before = self.store.get(name).decode() if self.store.check([name]) else ""
            shared = self.read(name) if before else None
            altered = alter(json.loads(shared)[0] if shared else None)
            text = json.dumps([altered, self.rank, secrets.token_hex(4)])  # no two changes are alike
            after = self._mac(name, text) + text
            if self.store.compare_set(name, before, after).decode() == after:
                return altered

    def shared(self, name: str) -> Any:
        """What all share under this name, which is there."""
        return json.loads(self._wait([name])[0])[0]

    def write(self, name: str, text: str) -> None:
        self.store.set(name, self._mac(name, text) + text)

    def forget(self, name: str) -> None:
        """Takes what was written under this name out of the memory of who keeps the store."""
        self.store.delete_key(name)

    def read(self, name: str) -> str | None:
        """What one of us wrote under this name, else None."""
        if not self.store.check([name]):
            return None
        value = self.store.get(name).decode(errors="replace")
        mac, text = value[:64], value[64:]
        return text if hmac.compare_digest(mac.encode(), self._mac(name, text).encode()) else None

    def _mac(self, name: str, text: str) -> str:
        return hmac.digest(self.key, f"{name} {text}".encode(), "sha256").hex()

    def report_failure(self, error: Exception) -> None:
        """Tells the others, which before the first step wait in `gather`: they see it at once, not after a time-out."""
        if self.size == 1:
            return
        with contextlib.suppress(RuntimeError):  # the store went down with its host: nobody is left to read it
            if self.read(FAILED) is None:
                self.write(FAILED, f"{self.node} cannot start: {error}")
                time.sleep(1 if self.rank == 0 else 0)  # the store may end with this process

    def start_group(self, *, nccl: bool) -> None:
        """Starts the process group; `nccl`: each rank has a card, and the cards exchange by themselves."""
        if self.size == 1:
            return
        prepare_nccl()
        backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
        self.gather("ready")  # a model may load for longer than connecting may take
        group_store = dist.PrefixStore("group", self.store)
        dist.init_process_group(backend, store=group_store, rank=self.rank, world_size=self.size, timeout=self.timeout)
        dist.distributed_c10d._set_pg_timeout(self.patience)
        if nccl:
            self.first_exchange("cuda")
            self.nccl = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))

    def first_exchange(self, device: str) -> None:
        """Exchanges known values, with a limit: two cards in one box may hang behind an IOMMU, or sum up wrongly."""
        mine, sums = torch.full((1 << 18,), float(self.rank + 1), device=device), set[float]()

        def exchange() -> None:
            dist.all_reduce(mine)
            sums.update((mine.min().item(), mine.max().item()))

        self.gather("together")
        thread = threading.Thread(target=exchange, name="first exchange", daemon=True)
        thread.start()
        thread.join(FIRST_EXCHANGE_S)
        right = self.size * (self.size + 1) / 2
        problem = "" if sums == {right} else WRONG_SUM if sums else NO_END.format(FIRST_EXCHANGE_S)
        ranks = self.gather([self.node, self.local_rank, problem])
        if problem := next((of_rank for _, _, of_rank in ranks if of_rank), ""):
            names = " and ".join(f"{node}:{card}" for node, card, _ in ranks)
            several = sorted({node for node, card, _ in ranks if card})
            where = f" for {', '.join(several)}, which has several cards" if several else ""
            switch = "NCCL_P2P_DISABLE: 1" if several else "NCCL_ALGO: Ring, NCCL_PROTO: Simple"
            raise CheckFailed(
                f"the cards of {names} {problem}", fix=f"motley_render_environment: {{{switch}}}{where}, then launch"
            )

    def numbers(self, mine: list[float]) -> list[list[float]]:
        """The same few numbers of each rank, in rank order: one round trip over gloo, which needs every peer. Nobody
        continues behind an exchange of the cards that failed on one of them: an update comes after it only."""
        if self.size == 1:
            return [mine]
        sent = torch.tensor([*mine, float(self._exchange_failed())], dtype=torch.float64)
        everyone = [torch.empty_like(sent) for _ in range(self.size)]
        with record_function(FIGURES):
            self.finish(dist.all_gather(everyone, sent, async_op=True))
        rows = [row.tolist() for row in everyone]
        if at := [str(rank) for rank, row in enumerate(rows) if row.pop()]:
            raise ExchangeFailedError(
                f"the exchange failed on rank {', '.join(at)}, and nobody is gone; what came of it is not applied",
                fix="it begins again at the last whole step; where that repeats: dmesg on it, cable, driver",
            )
        return rows

    def _exchange_failed(self) -> bool:
        """Whether NCCL's own thread ended a failed exchange: it says so only to who asks once the card is done."""
        if self.nccl is None:
            return False
        torch.cuda.synchronize()
        return bool(self.nccl.get_error() != ErrorType.SUCCESS)

    def broadcast(self, tensors: list[torch.Tensor], source: int) -> None:
        """Sends `tensors` by a copy: where this exchange is left, what still arrives, or is sent, is no weight of ours.
        Many at once, in main memory, as the ranks' devices may differ: an adapter and its moments are a thousand."""
        if self.size > 1:
            for part in in_parts(tensors):
                sizes = [tensor.numel() for tensor in part]
                travels = torch.empty(sum(sizes), dtype=part[0].dtype)
                if self.rank == source:
                    torch.cat([tensor.detach().reshape(-1).cpu() for tensor in part], out=travels)
                self.finish(dist.broadcast(travels, source, async_op=True))
                if self.rank != source:
                    for tensor, came in zip(part, travels.split(sizes), strict=True):
                        tensor.copy_(came.view(tensor.shape))
            self.numbers([])

    def require_group(self) -> None:
        if self.orders:
            self.orders.require_group()
        if self.peers and (ended := self.peers.ended):
            raise PeerFailed(f"rank {ended[0]} has ended; fix: its own last messages say why")

    def watch_peers(self) -> None:
        """From now on `require_group` notices at once who ends, until `say_last_word`."""
        if self.size > 1 and not os.environ.get("MOTLEY_AGENT"):
            self.peers = Peers(self.rank, self.size)

    def say_last_word(self) -> None:
        if self.peers:
            self.peers.say_last_word()

    def finish(self, work: Any) -> None:
        """Waits for an exchange."""
        if self.orders and not self.nccl:
            self.orders.finish(work)
        else:
            work.wait()

    def abandon(self) -> None:
        """Leaves the group as torch's destroy_process_group does, but waits for no member: one may be silent."""
        c10d = dist.distributed_c10d
        group = c10d._get_default_group() if dist.is_initialized() else None
        ABANDONED.append((group, self.store))  # to drop it is to wait for its threads
        if group:
            threading.Thread(target=group.abort, name="abandoned group", daemon=True).start()
            c10d._update_default_pg(None)
        # Also of one that did not come about: it has counted, and a group's keys bear its number.
        for known in BY_GROUP:
            getattr(c10d._world, known).clear()
        c10d._unregister_all_process_groups()
        c10d._world.group_count = 0


def in_parts(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yields parts, the same on all ranks: tensors of one type, some megabytes together."""
    part: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if part and (part[0].dtype != tensor.dtype or size + tensor.nbytes > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(tensor)
        size += tensor.nbytes
    if part:
        yield part


def prepare_nccl() -> None:
    # A lost peer ends the exchange, not this process as torch would have it: what is finished is saved first.
    # Then half of it is in the buffers and nothing raises: see `numbers`.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    # A broken card's error is raised where Python reports it; in NCCL's own thread it would abort the process.
    os.environ.setdefault("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")  # or it sleeps for up to a minute before it gives up


def over_nccl(wanted: str, places: Sequence[tuple[str, bool]]) -> tuple[bool, str]:
    """Whether ranks exchange over NCCL, and why; `places`: of each its machine, and whether it computes on a card.

    Between machines gloo is as fast as a home's network, and who is whole stays where another is lost: its exchanges
    can be left. NCCL's cannot."""
    machines = {machine for machine, _ in places}
    if len(places) == 1 or not all(on_card for _, on_card in places):
        return False, ""
    if wanted != "auto":
        return wanted == "nccl", f"exchange {wanted}: as set"
    if len(machines) == 1:
        return True, "exchange nccl: the cards are in one machine"
    return False, "exchange gloo: the cards are in several machines, of which one may be lost"


def join(timeout_s: float = 300.0, orders: Orders | None = None) -> World:
    """This process's place, from the variables that torchrun or another launcher sets; alone without them."""
    node = os.environ.get("MOTLEY_NODE") or socket.gethostname()
    timeout = timedelta(seconds=timeout_s)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World(local_rank=local_rank, node=node, timeout=timeout, orders=orders)
    store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    key = os.environ.get("MOTLEY_STORE_KEY", "").encode()
    private = dist.PrefixStore(hmac.digest(key, b"names", "sha256").hex(), store)  # gloo's keys: for nobody to guess
    world = World(rank, size, local_rank, node, private, timeout, key, orders)
    store.set_timeout(world.patience)
    return world
