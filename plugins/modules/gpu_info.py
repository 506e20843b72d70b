#!/usr/bin/python
# MIT License, see LICENSE
"""Look at a node's NVIDIA cards, its driver, its kernel and what its package sources offer. Changes nothing."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley import compiler, encrypted, graphics
from ansible.module_utils.motley import driver_packages as rules
from ansible.module_utils.motley.apt import Apt
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.driver_facts import (
    Catalogue,
    GpuLook,
    Installed,
    Kernel,
    NamedCard,
    PackageNames,
    Smi,
)
from ansible.module_utils.motley.errors import ModuleError
from ansible.module_utils.motley.files import read
from ansible.module_utils.motley.nvidia_module import run
from ansible.module_utils.train import nvidia_smi
from ansible.module_utils.train.nvidia_driver import library as newest_library
from ansible.module_utils.train.nvidia_driver import library_version, loaded, on_disk

DOCUMENTATION = r"""
module: gpu_info
short_description: NVIDIA cards, driver, kernel, Secure Boot and offered drivers of a node
author: Motley
description:
  - Reads the PCI bus, the loaded module, nvidia-smi, Secure Boot and apt's packages; changes nothing but apt's lists.
  - Without an NVIDIA card only cards is returned, empty.
options: {
  "catalogue": {"type": "dict", "required": true, "description": "What is known of branches and package names"},
  "offers": {"type": "bool", "default": true,
    "description": "Whether to ask the package sources which drivers they have"},
  "prove": {"type": "bool", "default": false,
    "description": "Fail unless driver, module and library agree and every card answers"},
  "compiler": {"type": "bool", "default": false,
    "description": "Whether it fails, too, where no GPU kernel can be built"},
  "named": {"type": "str", "default": "", "description": "The card that the inventory names; none: it is left alone"},
  "apt_wait_s": {"type": "int", "default": 300, "description": "How long to wait for another program that uses apt"}
}
"""
EXAMPLES = """
- name: Prove that driver, module and library agree
  gpu_info:
    catalogue: "{{ catalogue }}"  # roles/motley_gpu_driver/vars/main/driver_and_torch_catalogue.yml
    offers: false
    prove: true
  become: true
"""
RETURN = r"""
cards: {type: list, elements: dict, returned: always, description: "bus, device and lost of every NVIDIA card"}
installed: {type: dict, returned: with a card, description: The driver that is installed for the next kernel}
loaded: {type: dict, returned: with a card, description: "version and open of the driver that runs; empty: none"}
offered: {type: dict, returned: with a card, description: The drivers that the package sources offer}
"""
NO_CARD = "no NVIDIA card on its bus: nothing to do"
SECURE_BOOT = Path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
NOT_CHECKED = Path("/sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23")
DISPLAY_MANAGER = Path("/etc/systemd/system/display-manager.service")
CRYPTTAB = Path("/etc/crypttab")
CLEVIS = ("usr/share/initramfs-tools/hooks/clevis", "usr/lib/dracut/modules.d/60clevis")


def main() -> None:
    module = module_of(DOCUMENTATION)
    cards: list[NamedCard] = [{**card, "name": graphics.card_name(card["bus"])} for card in graphics.nvidia_cards()]
    off = graphics.switched_off()
    if module.params["named"] == "none":
        say = f"motley_gpu: none: its card at {cards[0]['bus']} is left alone" if cards else NO_CARD
        module.exit_json(changed=False, cards=[], switched_off="", motley_say=say)
    if not cards:
        module.exit_json(changed=False, cards=[], switched_off=off, motley_say="" if off else NO_CARD)
    try:
        report = look(cards, module.params, module.check_mode)
        report["switched_off"] = off
    except ModuleError as trouble:
        fix = "see it with: sudo apt-get check; sudo dpkg --audit"
        module.fail_json(msg=f"apt does not answer: {trouble}\nfix: {fix}")
    if module.params["prove"]:
        what, fix = rules.proof_fault(report)
        if module.params["compiler"] and not what:
            what, fix = compiler.fault(compiler.look())
        if what:
            module.fail_json(msg=f"{what}\nfix: {fix}", **report)
    module.exit_json(changed=False, **report)


class Options(TypedDict):
    catalogue: Catalogue
    apt_wait_s: int
    offers: bool


def look(cards: list[NamedCard], params: Options, check_mode: bool) -> GpuLook:
    apt = Apt(params["apt_wait_s"], look_only=check_mode)
    packages = apt.packages()
    kernel = kernel_of(packages, params["catalogue"])
    draws = rules.draws(packages, params["catalogue"])
    report: GpuLook = {
        "cards": cards,
        "installed": installed(kernel["next"]),
        "module_signer": on_disk(kernel["next"], "signer"),
        "loaded": loaded(),
        "loaded_signer": loaded_signer(),
        "smi": ask_nvidia_smi(),
        "nouveau": Path("/sys/module/nouveau").exists(),
        "secure_boot": secure_boot(),
        "kernel": kernel,
        "draws": draws,
        "desktop": bool(draws) or DISPLAY_MANAGER.exists(),
        "passphrase": passphrase(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "offered": {},
        "leads": {},
        "source": "",
        "names": params["catalogue"]["names"][0]["name"],
        "apt_trouble": "",
    }
    if params["offers"]:
        report["apt_trouble"] = apt.refresh()
        report |= offers(apt, params["catalogue"])
    return report


# -- hardware and firmware -------------------------------------------------------------------------------------


def secure_boot() -> bool:
    """The firmware's own variable, unless shim was told not to check (mokutil --disable-validation); mokutil where it
    cannot be read."""
    if NOT_CHECKED.exists():
        return False
    try:
        return SECURE_BOOT.read_bytes()[-1:] == b"\x01"
    except OSError:
        return "SecureBoot enabled" in run("mokutil", "--sb-state").stdout


def passphrase() -> str:
    """The encrypted device at which a start waits for somebody; empty where it waits for nobody."""
    try:
        tree = json.loads(run("lsblk", "--json", "--output", "NAME,TYPE,MOUNTPOINTS").stdout or "{}")
    except ValueError:
        tree = {}
    clevis = any((Path("/") / hook).exists() for hook in CLEVIS)
    return encrypted.waits_for(
        tree, read(CRYPTTAB), lambda device: run("cryptsetup", "luksDump", device).stdout, clevis
    )


# -- driver and kernel -----------------------------------------------------------------------------------------


def installed(kernel: str) -> Installed:
    """The driver on disk: its library, and its module for the kernel that starts next. Empty: there is none."""
    library = newest_library()
    if not library:
        return {}
    version = library_version(library)
    module = on_disk(kernel, "version")
    is_open = "MIT/GPL" in on_disk(kernel, "license") if module else loaded().get("open", False)
    packaged = run("dpkg", "-S", str(library.resolve())).returncode == 0
    complete = module == version and shutil.which("nvidia-smi") is not None
    return {"version": version, "open": is_open, "packaged": packaged, "complete": complete, "module": module}


def loaded_signer() -> str | None:
    """Whose key the loaded module is signed with, empty: nobody's; None where none is loaded or its file has gone."""
    running = platform.release()
    known = loaded() and loaded()["version"] == on_disk(running, "version")
    return on_disk(running, "signer") if known else None


def kernel_of(packages: dict[str, rules.Package], catalogue: Catalogue) -> Kernel:
    metapackages = rules.kernel_metapackages(packages, catalogue)
    images = rules.images(packages, catalogue)
    following = rules.release_of(images[-1]) if images else platform.release()
    return {
        "running": platform.release(),
        "next": following,
        "metapackages": metapackages,
        "tracks": rules.tracks(metapackages),
        "headers": [f"linux-headers-{following}"],
    }


def ask_nvidia_smi() -> Smi:
    try:
        rows = nvidia_smi.table("gpu", ["pci.bus_id", "name", "driver_version"])
    except nvidia_smi.Silent as why:
        return {"cards": [], "trouble": str(why)}
    cards = [{"bus": row["pci.bus_id"], "name": row["name"], "driver": row["driver_version"]} for row in rows]
    return {"cards": cards, "trouble": ""}


# -- what could be installed -----------------------------------------------------------------------------------


def offers(apt: Apt, catalogue: Catalogue) -> GpuLook:
    """Branch, open or closed, version: of the first whose packages are on offer in a branch that we know."""
    known = [entry["branch"] for entry in catalogue["branches"]]
    other: GpuLook = {"offered": {}}
    for names in catalogue["names"]:
        offered, leads = dict[str, dict[str, str]](), dict[str, str]()
        for branch in known:
            led = leads_to(apt, names, branch)
            leads |= {branch: led} if led else {}
            offered |= {} if led else in_branch(apt, names, branch)
        found: GpuLook = {"names": names["name"], "source": names["of"], "offered": offered, "leads": leads}
        if set(offered) & set(known):
            return found
        if offered and not other["offered"]:
            other = found
    return other


def leads_to(apt: Apt, names: PackageNames, branch: str) -> str:
    """The branch that packages of this one's name lead to where they are only a name for it."""
    if "{branch}" not in names["version"]:
        return ""
    asked = [names["version"], *(name for kind in ("open", "closed") for name in names["desktop"][kind])]
    named = (name.format(branch=branch) for name in asked)
    return next((led for name in named if (led := rules.leads_to(name, apt.depends(name)))), "")


def in_branch(apt: Apt, names: PackageNames, branch: str) -> dict[str, dict[str, str]]:
    """{branch: {open: version, closed: version}}; a name without a branch offers whatever branch it is."""
    probe = names["version"].format(branch=branch)
    pin = names.get("pin", "").format(branch=branch)
    wanted = {
        kind: [name.format(branch=branch, open="-open" if kind == "open" else "") for name in names["server"][kind]]
        for kind in ("open", "closed")
    }
    if "signed" not in names:
        wanted = {kind: [*driver, *names["dkms"][kind]] for kind, driver in wanted.items()}
    asked = {probe, *([pin] if pin else []), *(name for group in wanted.values() for name in group)}
    candidates = apt.candidates(sorted(asked))
    versions = apt.versions(probe) if pin in candidates and pin else [candidates.get(probe, "")]
    version = next((rules.version_of_driver(v) for v in versions if rules.version_of_driver(v).startswith(branch)), "")
    if not version and "{branch}" not in names["version"]:
        version = rules.version_of_driver(candidates.get(probe, ""))
    kinds = [kind for kind, group in wanted.items() if all(name in candidates for name in group)]
    return {version.split(".")[0]: dict.fromkeys(kinds, version)} if version and kinds else {}


if __name__ == "__main__":
    main()
