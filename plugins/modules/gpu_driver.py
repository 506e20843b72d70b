#!/usr/bin/python
# MIT License, see LICENSE
"""Install a driver without moving the kernel, hold both, and take all of it back on demand."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley import compiler, encrypted
from ansible.module_utils.motley import driver_packages as rules
from ansible.module_utils.motley.apt import Apt
from ansible.module_utils.motley.apt_lock import holder
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.errors import ModuleError
from ansible.module_utils.motley.nvidia_module import KEYS, own_key, own_key_is_known, run
from ansible.module_utils.motley.undo_record import Before, KeptPackage, write_file
from ansible.module_utils.train.nvidia_driver import loaded, on_disk

DOCUMENTATION = r"""
module: gpu_driver
short_description: A node's driver packages, their holds, and their undo
author: Motley
description:
  - Installs the planned packages, after it has seen that apt would not move the kernel with them.
  - Brings the compiler and the headers that GPU kernels are built with, where they are missing.
  - Holds driver, CUDA and kernel at their versions, or lifts these holds.
  - Records what was there first; O(state=undone) gives it back.
options: {
  "state": {"type": "str", "choices": ["present", "undone"], "default": "present",
    "description": "undone: as it was at first"},
  "install": {"type": "bool", "default": false,
    "description": "Whether packages are installed; else what is there is kept"},
  "names": {"type": "dict", "default": {},
    "description": "methods (the safest first), built (modules to compile), first"},
  "look": {"type": "dict", "default": {}, "description": "What gpu_info found"},
  "catalogue": {"type": "dict", "default": {}, "description": "Which packages belong to driver and kernel"},
  "compiler": {"type": "bool", "default": false, "description": "Whether what GPU kernels are built with is installed"},
  "hold": {"type": "bool", "default": true,
    "description": "Whether driver, CUDA and kernel stay; false lifts our holds"},
  "own_key": {"type": "bool", "default": false,
    "description": "Whether Secure Boot may ask for a key on the machine's screen"},
  "wait_s": {"type": "int", "default": 300, "description": "How long to wait for another program that uses apt"},
  "say": {"type": "str", "default": "", "description": "The plan's sentence"}
}
"""
EXAMPLES = """
- name: Put back its driver and its holds
  gpu_driver:
    state: undone
    catalogue: "{{ catalogue }}"  # roles/motley_gpu_driver/vars/main/driver_and_torch_catalogue.yml
  become: true
"""
RETURN = r"""
restart: {type: str, returned: always, description: Why the node must restart; empty if it need not}
"""
PHASE = "gpu_driver"
PIN = Path("/etc/apt/preferences.d/motley-gpu-driver.pref")
ROUNDS = 4
INSTALL = ("--no-install-recommends", "install")


def main() -> None:
    module = module_of(DOCUMENTATION)
    change = DriverChange(module)
    try:
        change.undo() if module.params["state"] == "undone" else change.converge()
    except ModuleError as failure:
        fix = "" if failure.fix else "\nfix: put right what apt reports (sudo apt-get check), then run again"
        module.fail_json(msg=f"{failure}{fix}")
    module.exit_json(
        changed=change.changed,
        restart=change.restart,
        passphrase=encrypted.WORDS if change.restart and change.params["look"]["passphrase"] else "",
        motley_say="; ".join(filter(None, change.says)),
        diff=rules.difference(change.was, change.now),
    )


class DriverChange:
    """This machine's packages: as they were when we came, and as they are (or, in check mode, would be)."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params, self.check_mode = module.params, module.check_mode
        self.apt = Apt(self.params["wait_s"], look_only=self.check_mode)
        self.before = Before(PHASE)
        self.says: list[str] = []
        self.restart = ""
        self.changed = False
        self.wait_for_apt()
        self.now = self.apt.packages()
        self.was = self.now

    def wait_for_apt(self) -> None:
        """apt waits by itself as well; this shows for which program."""
        start, who = time.monotonic(), holder()
        if not who or self.check_mode:
            return
        while holder() and time.monotonic() - start < self.params["wait_s"]:
            time.sleep(0.5)
        self.says.append(f"waited {time.monotonic() - start:.0f} s for {who}, which used apt")

    def converge(self) -> None:
        self.says.append(self.params["say"])
        if self.check_mode:
            self.changed = self.apt.interrupted()
        elif self.apt.finish_interrupted():
            self.says.append("an interrupted installation was finished")
            self.notice()
        if self.params["install"]:
            self.install()
        if self.params["hold"]:
            self.hold()
            self.prove_hold()
        else:
            self.lift_holds()
        if self.params["compiler"]:
            self.bring_compiler()
        self.load()

    # -- packages ----------------------------------------------------------------------------------------------

    def install(self) -> None:
        names = self.params["names"]
        if names["first"] and not self.check_mode:
            self.transact(names["first"])
        method = self.choose()
        wanted = method["packages"]
        self.says.append(method["how"])
        if self.check_mode:
            if self.params["look"]["passphrase"]:
                self.says.append(f"if it must restart for it: {encrypted.WORDS}")
            self.assume(self.apt.simulate(*INSTALL, "--allow-change-held-packages", *wanted))
            return
        kernels = rules.images(self.now, self.params["catalogue"])
        self.transact(wanted)
        if rules.images(self.now, self.params["catalogue"]) != kernels:
            raise ModuleError(
                "the kernel moved with the driver, against the simulation", "./motley undo --phase gpu_driver"
            )
        self.says.append(f"kernel unmoved ({', '.join(map(rules.release_of, kernels)) or 'no package'})")

    def choose(self) -> dict[str, Any]:
        tried = []
        for method in self.params["names"]["methods"]:
            simulated = self.apt.simulate(*INSTALL, "--allow-change-held-packages", *method["packages"])
            tried.append(
                {
                    **method,
                    "trouble": simulated.trouble,
                    **rules.side_effects(simulated, self.now, self.params["catalogue"]),
                    "builds": [name for name in self.params["names"]["built"] if name in simulated.installs],
                    "other": self.other_version(method["same_version"], simulated),
                }
            )
        own_key = self.params["own_key"] or own_key_is_known()
        chosen = rules.choose_modules(tried, {"secure_boot": self.params["look"]["secure_boot"], "own_key": own_key})
        if "error" in chosen:
            raise ModuleError(chosen["error"], chosen["fix"])
        return dict(chosen["method"])

    def other_version(self, same: dict[str, str], simulated: rules.Simulated) -> str:
        """Says that modules and driver differ in version, and so do not work together: apt does not compare it."""
        if not same or simulated.trouble:
            return ""
        modules = rules.least_of(self.apt.depends(same["package"]), same["needs"])
        present = self.now[same["driver"]].version if same["driver"] in self.now else ""
        driver = rules.version_of_driver(simulated.installs.get(same["driver"], present))
        return "" if modules == driver else f"they are of {modules}, the driver is {driver}"

    def transact(self, names: list[str]) -> None:
        """What will be touched is written down before, so that a power cut in between can be undone as well."""
        words = (*INSTALL, "--allow-change-held-packages", *names)
        simulated = self.apt.simulate(*words)
        self.remember([*simulated.installs, *simulated.removes, *names])
        self.apt.change(*words)
        self.notice()

    def assume(self, simulated: rules.Simulated) -> None:
        coming = {name: rules.Package(version) for name, version in simulated.installs.items()}
        self.now = {name: package for name, package in self.now.items() if name not in simulated.removes} | coming
        self.changed = True

    def bring_compiler(self) -> None:
        """What is there already is left as it is. What is upgraded with it (libc6) stays so after an undo."""
        found = compiler.look()
        names = compiler.lacking(found)
        what, fix = compiler.beyond_packages(found)
        if names and not what:
            simulated = self.apt.simulate(*INSTALL, *names)
            what, fix = compiler.against(names, simulated, rules.touches(simulated, self.now, self.params["catalogue"]))
        if what:
            raise ModuleError(what, fix)
        if not names or not simulated.installs:
            return
        self.says.append(f"{' '.join(names)} for GPU kernels")
        if self.check_mode:
            self.assume(simulated)
            return
        self.remember([name for name in simulated.installs if name not in self.now])
        self.apt.change(*INSTALL, *names)
        self.now, self.changed = self.apt.packages(), True

    def notice(self) -> None:
        """Take note of what has changed just now."""
        earlier, self.now = self.now, self.apt.packages()
        self.remember([name for name in {*earlier, *self.now} if earlier.get(name) != self.now.get(name)], earlier)
        self.changed = True

    def remember(self, names: list[str], packages: dict[str, rules.Package] | None = None) -> None:
        """Each package as it was when it was touched for the first time; null: it was not there."""
        known, ours = self.before.data.setdefault("packages", {}), self.before.data.get("holds", [])
        for name in names:
            if name not in known:
                package = (packages or self.now).get(name)
                held = package is not None and package.held and name not in ours
                known[name] = {"version": package.version, "auto": package.auto, "held": held} if package else None
        self.before.save()

    # -- holds -------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        loose = [n for n in rules.protected(self.now, self.params["catalogue"]) if not self.now[n].held]
        self.mark_held(loose)
        if loose:
            self.says.append(f"{len(loose)} packages held")

    def mark_held(self, names: list[str]) -> None:
        if not names:
            return
        self.changed = True
        if self.check_mode:
            self.now = self.now | {name: replace(self.now[name], held=True) for name in names}
        else:
            ours = self.before.data.setdefault("holds", [])
            ours += [name for name in names if name not in ours]
            self.before.save()
            self.apt.mark("hold", names)
            self.now = self.apt.packages()

    def prove_hold(self) -> None:
        """An upgrade of everything, simulated, leaves driver, CUDA and kernel alone; what it would not, is held too."""
        if self.check_mode and self.changed:
            return  # what would be held is not yet
        pinned: list[str] = []
        for _ in range(ROUNDS):
            simulated = self.apt.simulate("dist-upgrade")
            if simulated.trouble:
                raise ModuleError(f"a full upgrade cannot be simulated: {simulated.trouble}")
            moved = rules.touches(simulated, self.now, self.params["catalogue"])
            if not moved:
                return
            if self.check_mode:
                self.changed = True
                return
            self.mark_held([name for name in moved if name in self.now and not self.now[name].held])
            pinned += [name for name in moved if name not in self.now]
            self.pin(pinned)
        raise ModuleError(f"a full upgrade would still change {', '.join(moved)}", "see why: apt-get -s dist-upgrade")

    def pin(self, names: list[str]) -> None:
        if not names:
            return
        earlier = re.findall(r"^Package: (.*)$", PIN.read_text(), re.MULTILINE) if PIN.exists() else []
        self.before.keep(PIN)
        write_file(PIN, rules.pin_text(list({*earlier, *names})), 0o644, (0, 0))
        self.before.wrote(PIN)
        self.changed = True

    def lift_holds(self) -> None:
        ours = [n for n in self.before.data.get("holds", []) if n in self.now and self.now[n].held]
        pinned = str(PIN) in self.before.data["files"] and PIN.exists()
        self.changed = self.changed or bool(ours) or pinned
        if (ours or pinned) and not self.check_mode:
            self.apt.mark("unhold", ours)
            PIN.unlink(missing_ok=True)
            self.says.append(f"{len(ours)} holds lifted: upgrade, then run again to hold what you have then")
            self.now = self.apt.packages()

    # -- the module in the kernel ------------------------------------------------------------------------------

    def load(self) -> None:
        """Load it now where nothing blocks it; else say why a restart is needed."""
        if self.check_mode:
            return
        kernel = self.params["look"]["kernel"]
        installed, running = on_disk(kernel["next"]), loaded().get("version", "")
        other_kind = loaded().get("open", False) != ("MIT/GPL" in on_disk(kernel["next"], "license"))
        if self.params["look"]["secure_boot"] and installed:
            self.refuse_unknown_key(on_disk(kernel["next"], "signer"))
        if running and running != installed:
            self.restart = f"it runs module {running}, {installed} is installed"
        elif running and other_kind:
            self.restart = f"it runs the other kind of module {running} (open or closed) than is installed"
        elif not running and self.params["look"]["nouveau"]:
            self.restart = "nouveau holds the card"
        elif not running:
            self.restart = self.try_module()
            self.changed = self.changed or not self.restart

    def try_module(self) -> str:
        done = run("modprobe", "nvidia")
        if done.returncode == 0 and loaded():
            return ""
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        return f"its module does not load yet: {reason}"

    def refuse_unknown_key(self, signer: str) -> None:
        """Before any restart: the firmware will ask a person, and nobody sees its screen over SSH."""
        if not rules.key_is_known(signer, self.params["look"]) and not own_key_is_known():
            raise ModuleError(*rules.key_question(signer, own_key() or KEYS[0]))

    # -- undo ----------------------------------------------------------------------------------------------

    def undo(self) -> None:
        if not self.before.recorded:
            self.says.append("nothing to put back")
            return
        known = self.before.data.get("packages", {})
        gone = [name for name, was in known.items() if was is None and name in self.now]
        other = {
            name: was
            for name, was in known.items()
            if was and (name not in self.now or self.now[name].version != was["version"])
        }
        stay = self.needed_by_others(gone)
        gone = [name for name in gone if name not in stay]
        self.changed = True
        self.says.append(f"{len(gone)} packages go, {len(other)} come back")
        if self.check_mode:
            kept = {name: package for name, package in self.now.items() if name not in gone}
            self.now = kept | {name: rules.Package(was["version"]) for name, was in other.items()}
            return
        self.apt.finish_interrupted()
        self.put_back(gone, other)
        self.now = self.apt.packages()
        self.apt.mark("unhold", [name for name in self.before.data.get("holds", []) if name in self.now])
        self.before.restore()
        for how, wanted in (("auto", True), ("manual", False)):
            self.apt.mark(how, [n for n, was in known.items() if was and n in self.now and was["auto"] == wanted])
        self.apt.mark("hold", [n for n, was in known.items() if was and n in self.now and was["held"]])
        self.apt.mark("auto", stay)  # from now on they go with what needs them
        self.now = self.apt.packages()
        self.unload()
        self.before.forget()

    def needed_by_others(self, gone: list[str]) -> list[str]:
        """The packages that came and are no driver, such as the compiler, and that something installed since needs."""
        came = rules.strangers(gone, self.params["catalogue"])
        needing = sorted({*self.apt.simulate("remove", *came).removes} - {*gone}) if came else []
        needed = self.apt.needs(needing)
        stay = sorted((name for name in came if name in needed), key=lambda name: self.now[name].auto)
        if stay:
            more = f" and {len(stay) - 1} more stay" if stay[1:] else " stays"
            self.says.append(f"{stay[0]}{more}, needed by {', '.join(needing[:3])}")
        return stay

    def put_back(self, gone: list[str], other: dict[str, KeptPackage]) -> None:
        """One transaction: the machine is never without what it had."""
        words = ["--no-install-recommends", "--allow-change-held-packages", "--allow-downgrades", "--purge", "install"]
        exact = [f"{name}={was['version']}" for name, was in other.items()]
        leaving = [f"{name}-" for name in gone]
        if not leaving and not exact:
            return
        self.apt.refresh()
        simulated = self.apt.simulate(*words, *leaving, *exact)
        if simulated.trouble:  # the old build has left the package sources: the newest of the same name comes instead
            exact = list(other)
            simulated = self.apt.simulate(*words, *leaving, *exact)
            self.says.append("the old build is no longer offered, the newest of the same packages came back")
        strangers = sorted({*simulated.removes} - {*gone})
        if simulated.trouble or strangers:
            why = simulated.trouble or f"{', '.join(strangers)} would go with it"
            raise ModuleError(f"the packages cannot be put back: {why}", "remove or repair that first, then run again")
        self.apt.change(*words, *leaving, *exact)

    def unload(self) -> None:
        running, installed = loaded().get("version", ""), on_disk(self.kernel_next())
        if running and running != installed:
            modules = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
            run("modprobe", "-r", *modules)
        if loaded().get("version", "") not in ("", installed):
            self.says.append("restart it to be rid of the loaded module")
        elif installed and not loaded():
            run("modprobe", "nvidia")

    def kernel_next(self) -> str:
        images = rules.images(self.now, self.params["catalogue"])
        return rules.release_of(images[-1]) if images else ""


if __name__ == "__main__":
    main()
