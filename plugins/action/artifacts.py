"""The controller's part of the relay: gives every node its place in the chain, and feeds the first one."""

from __future__ import annotations

import hashlib
import json
import shlex
import threading
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console.infra import infra_of
from plugins.module_utils.motley import listening_ports, pass_files_on

TOLD_BYTES = 50_000_000
"""What is so large may take a while."""


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        params = dict(self._task.args)
        if not infra_of(known).ours:
            return result | self._over_ssh(params, known)
        me, chain = known["inventory_hostname"], list(params.pop("nodes", None) or known["ansible_play_hosts"])
        if me not in chain:
            return result | {"skipped": True, "skip_reason": "it takes no part"}
        if caller := self._shut_out():
            what = f"its firewall does not let this controller in, which comes from {caller} now"
            return result | {"failed": True, "msg": f"{what}\nfix: ./motley bootstrap --phase firewall"}
        source = Path(params.pop("source"))
        places = {name: address_of(known["hostvars"][name]) for name in chain}
        token = self._token(known, params)
        place = chain.index(me) + 1
        params |= {"address": places[me], "token": token, "place": place, "after": dict(list(places.items())[place:])}
        if self._task.check_mode or me != chain[0]:
            result |= self._execute_module(module_name="artifacts", module_args=params, task_vars=known)
            return result

        files = pass_files_on.listed(params["files"])
        store = pass_files_on.Store.whole(source, files)
        targets = [pass_files_on.Target(name, address) for name, address in places.items()]
        asked = (store, targets, int(params.get("port", 29890)), token, pass_files_on.patience_s(files))
        feeder = threading.Thread(target=pass_files_on.hand_on, args=asked, daemon=True)
        feeder.start()
        over = threading.Event()
        watcher = threading.Thread(target=self._tell, args=(store, Path(params["folder"]).name, over), daemon=True)
        watcher.start()
        try:
            reply = self._execute_module(module_name="artifacts", module_args=params, task_vars=known)
            if reply.get("failed") and "refused" in str(reply.get("msg")):
                store.stop(str(reply["msg"]).splitlines()[0])
        finally:
            over.set()
            feeder.join()  # where the connection to the first node was lost, the others are still being served
        return {**result, **reply}

    def _over_ssh(self, params: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """Brings files over SSH alone: to a login node there is no other way, and there is only one of it."""
        wanted = {file.name: file for file in pass_files_on.listed(params["files"])}
        folder = self._remote_expand_user(str(params["folder"]))
        self._low_level_execute_command(f"mkdir -p {shlex.quote(folder)}", sudoable=False)
        there = self._hashes(folder, known)
        lacking = [
            name for name, file in wanted.items() if there.get(name) != {"size": file.size, "sha256": file.sha256}
        ]
        more = [name for name in there if name not in wanted] if params.get("prune") else []
        parents = sorted({str(Path(folder, name).parent) for name in lacking})
        if parents:
            self._low_level_execute_command(shlex.join(["mkdir", "-p", *parents]), sudoable=False)
        if more:
            surplus = [f"{folder}/{name}" for name in more]
            self._low_level_execute_command(shlex.join(["rm", "-f", *surplus]), sudoable=False)
        if (whole := sum(wanted[name].size for name in lacking)) > TOLD_BYTES:
            files = f"{len(lacking)} of {len(wanted)} files"
            self._display.display(f"  bringing {pass_files_on.megabytes(whole)} over ssh ({files})")
        for name in lacking:
            if (size := wanted[name].size) > TOLD_BYTES:
                self._display.display(f"  bringing {name}, {pass_files_on.megabytes(size)} of them")
            self._connection.put_file(str(Path(params["source"], name)), f"{folder}/{name}")
        now = self._hashes(folder, known) if lacking else there
        if wrong := [name for name in lacking if now.get(name, {}).get("sha256") != wanted[name].sha256]:
            return {"failed": True, "msg": f"{wrong[0]} did not arrive as it was\nfix: the same again"}
        return {"changed": bool(lacking or more), "received": len(lacking)}

    def _hashes(self, folder: str, known: dict[str, Any]) -> dict[str, Any]:
        found = self._execute_module(module_name="artifacts_info", module_args={"folder": folder}, task_vars=known)
        return dict(found.get("files", {}))

    def _shut_out(self) -> str:
        """The controller's address as the node sees it, where the node's own rules do not know it."""
        if self._task.check_mode or self._connection.transport == "local":
            return ""
        return listening_ports.shut_out(self._low_level_execute_command(listening_ports.ASK, sudoable=False)["stdout"])

    def _tell(self, store: pass_files_on.Store, what: str, over: threading.Event, every_s: float = 5.0) -> None:
        """A line now and then while much is handed on: how far, how fast, and how long it still takes."""
        before, since = 0, time.monotonic()
        while not over.wait(every_s):
            given, now = store.given, time.monotonic()
            rate = (given - before) / (now - since)
            if 0 < given < store.to_give and rate > 0:
                gone, of = map(pass_files_on.megabytes, (given, store.to_give))
                far = f"{gone} of {of} · {rate / 1e6:.1f} MB/s"
                self._display.display(f"  handing on {what} {far} · {(store.to_give - given) / rate:.0f} s to go")
            before, since = given, now

    def _token(self, known: dict[str, Any], params: dict[str, Any]) -> str:
        """The same in every worker of this task, and nobody's guess: made from the controller's own key."""
        folder = known["hostvars"][known["inventory_hostname"]]["motley_state_folder"]
        key = Path(str(folder)) / "controller_ed25519"
        secret = key.read_bytes() if key.exists() else b"loopback"
        words = json.dumps([str(self._task._uuid), params["files"]], sort_keys=True)
        return hashlib.sha256(secret + words.encode()).hexdigest()


def address_of(variables: Any) -> str:
    """The address at which a node answers now; a local one has only the address that it is to have."""
    if variables.get("ansible_connection") == "local":
        return str(variables["motley_address"])
    return str(variables.get("ansible_host") or variables["motley_address"])
