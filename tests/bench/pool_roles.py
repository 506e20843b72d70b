"""The machines of pool_engines.py, in its own environment: the one that keeps the list, workers, and a stranger.

    python pool_roles.py optuna host|worker|stranger FOLDER ADDRESS     (and the same of dask, with client)

As the pages of Optuna and Dask show it, with what they offer against losses; whoever ends by a lost connection starts
again after a second, as under systemd. A piece takes a second and writes into FOLDER/done who has worked on it; what
the engine itself says lies in FOLDER/record. One idea per role, no import of Motley.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIECES, PIECE_S, PORT = 24, 1.0, 7788
AGAIN_S, CALL_S = 1.0, 20.0


def work(folder: str, number: int) -> int:
    """What is done a second time has a second line. In hand: what a fault is to hit."""
    in_hand = Path(folder) / f"in-hand-{os.environ.get('POOL_NODE', '?')}"
    in_hand.touch()
    time.sleep(PIECE_S)
    in_hand.unlink()
    with (Path(folder) / "done").open("a") as file:
        file.write(f"{number} {time.time():.2f} {os.environ.get('POOL_NODE', '?')}\n")
    return number


def record(folder: Path, numbers: list[int], found: bool = True) -> None:
    """What the engine knows as done; the old one stays where it cannot be asked."""
    if found:
        draft = folder / f"record.{os.getpid()}"
        draft.write_text(json.dumps(sorted(numbers)))
        draft.replace(folder / "record")


# -- Optuna: trials in a database of the host, by its gRPC proxy -------------------------------------------------------


def optuna_host(folder: Path, _: str) -> None:
    import optuna

    again = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{folder}/study.db",
        heartbeat_interval=1,
        grace_period=5,
        heartbeat_stale_trial_callback=again,
    )
    study = optuna.create_study(study_name="pool", storage=storage, load_if_exists=True)
    if not study.trials:
        for number in range(PIECES):
            study.enqueue_trial({"number": number})
    optuna.storages.run_grpc_proxy_server(storage, host="0.0.0.0", port=PORT)


def optuna_worker(folder: Path, address: str) -> None:
    import optuna

    states = optuna.trial.TrialState

    def objective(trial: Any) -> float:
        number = trial.suggest_int("number", 0, 10**9)
        if number >= PIECES:
            raise optuna.TrialPruned  # drawn, as nothing was waiting
        return float(work(str(folder), number))

    while True:
        try:
            storage = optuna.storages.GrpcStorageProxy(host=address, port=PORT)
            study = optuna.load_study(study_name="pool", storage=storage)
            while True:
                if study.get_trials(deepcopy=False, states=(states.WAITING,)):
                    study.optimize(objective, n_trials=1)
                done = study.get_trials(deepcopy=False, states=(states.COMPLETE,))
                record(folder, [int(trial.params["number"]) for trial in done])
                time.sleep(0.1)
        except Exception as error:
            print(f"worker: {type(error).__name__}: {str(error)[:200]}", flush=True)
            time.sleep(AGAIN_S)


def optuna_stranger(folder: Path, address: str) -> dict[str, bool]:
    import optuna

    storage = optuna.storages.GrpcStorageProxy(host=address, port=PORT)

    def read() -> bool:
        return bool(optuna.load_study(study_name="pool", storage=storage).trials)

    def add() -> bool:
        study = optuna.load_study(study_name="pool", storage=storage)
        study.enqueue_trial({"number": 10**8})
        return len(study.trials) > PIECES

    def take() -> bool:
        study = optuna.load_study(study_name="pool", storage=storage)
        study.tell(study.ask(), 0.0)
        return True

    def delete() -> bool:
        optuna.delete_study(study_name="pool", storage=storage)
        return "pool" not in optuna.get_all_study_names(storage)

    return {"read": can(read), "add": can(add), "take": can(take), "delete": can(delete), "run code": False}


# -- Dask: tasks in the memory of its scheduler ------------------------------------------------------------------------


def dask_settings() -> None:
    import dask

    dask.config.set(
        {
            "distributed.scheduler.worker-ttl": "5s",
            "distributed.comm.timeouts.connect": "5s",
            "distributed.comm.timeouts.tcp": "15s",
            "distributed.scheduler.allowed-failures": 10,
        }
    )


def dask_host(folder: Path, address: str) -> None:
    import asyncio

    from distributed import Scheduler

    async def keep() -> None:
        async with Scheduler(host=address, port=PORT, dashboard=False) as scheduler:
            await scheduler.finished()

    asyncio.run(keep())


def dask_worker(folder: Path, address: str) -> None:
    import asyncio

    from distributed import Worker

    async def keep() -> None:
        own = os.environ["POOL_ADDRESS"]
        name = os.environ.get("POOL_NODE")
        async with Worker(f"tcp://{address}:{PORT}", nthreads=1, name=name, host=own, dashboard=False) as worker:
            await worker.finished()

    while True:
        try:
            asyncio.run(keep())
        except Exception as error:
            print(f"worker: {type(error).__name__}: {str(error)[:200]}", flush=True)
        time.sleep(AGAIN_S)


def dask_client(folder: Path, address: str) -> None:
    """Asks for all pieces, and writes down each answer as it comes: the record is its own, as Dask keeps none."""
    from distributed import Client, as_completed

    got: list[int] = []
    client = Client(f"tcp://{address}:{PORT}", timeout="60s")
    asked = client.map(work, [str(folder)] * PIECES, range(PIECES), pure=False)
    for future in as_completed(asked):
        if future.status == "finished":
            got.append(future.result())
            record(folder, got)
        else:
            print(f"client: a piece is {future.status}", flush=True)
    time.sleep(3600)


def dask_stranger(folder: Path, address: str) -> dict[str, bool]:
    from distributed import Client

    client = Client(f"tcp://{address}:{PORT}", timeout="10s")

    def read() -> bool:
        return bool(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))

    def add() -> bool:
        return bool(client.submit(sum, [1, 2], pure=False).result(timeout=CALL_S) == 3)

    def run_code() -> bool:
        return str(os.getpid()) not in client.run(lambda: f"{os.getpid()} {socket.gethostname()}").values()

    def delete() -> bool:
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks.clear())
        return not client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))

    return {"read": can(read), "add": can(add), "take": can(add), "run code": can(run_code), "delete": can(delete)}


def can(do: Callable[[], bool]) -> bool:
    try:
        return do()
    except Exception as error:
        print(f"stranger: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return False


ROLES: dict[str, Callable[[Path, str], Any]] = {
    "optuna host": optuna_host,
    "optuna worker": optuna_worker,
    "optuna stranger": optuna_stranger,
    "dask host": dask_host,
    "dask worker": dask_worker,
    "dask client": dask_client,
    "dask stranger": dask_stranger,
}


def main(engine: str, role: str, folder: str, address: str) -> None:
    if engine == "dask":
        dask_settings()
    answer = ROLES[f"{engine} {role}"](Path(folder), address)
    if answer:
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
