"""Hands what every node reported to console/doctor, which judges it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from console.controller_action import Facts, OnController
from console.doctor import show
from console.doctor.judge import judge
from console.doctor.readings_and_findings import NodeReadings, Readings
from console.playbook.ansible_errors import own_words
from console.playbook.ansible_events import TaskResult


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        names = list(known["ansible_play_hosts_all"])
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            nodes = list(pool.map(lambda name: node_of(name, known["hostvars"]), names))
        verdict = judge(
            Readings(nodes=nodes, load=args["load"], full=args["full"], no_collective=args["no_collective"])
        )
        seconds = sum(max((node.took.get(part, 0.0) for node in nodes), default=0.0) for part in PARTS)
        data = show.as_data(verdict, seconds)
        shown = show.lines(verdict, seconds)
        if verdict.ok:
            return {"doctor": data, "motley_lines": shown}
        return {"failed": True, "doctor": data, "msg": "\n".join(["what was found:", *shown])}


PARTS = ("contact", "look", "versions", "driver", "reach", "links", "collective")


def node_of(name: str, hostvars: Any) -> NodeReadings:
    values = hostvars[name]

    def reported(key: str) -> Any:
        return dict(values.get(key) or {})

    root, user = reported("motley_doctor_as_root"), reported("motley_doctor_as_user")
    links, driver, together = (reported(f"motley_doctor_{key}") for key in ("links", "driver", "together"))
    looked = root if root.get("look") else user
    look = looked["look"] | {"clock": {"skew_s": looked["clock_off_s"]}} if looked.get("look") else None
    found = reported("motley_doctor_contact")
    contact = dict((found.get("contacts") or {}).get(name) or {})
    gone = next((str(answer["msg"]) for answer in (root, user) if answer.get("unreachable")), "")
    took = {"contact": float(found.get("waited_s") or 0)} | dict(links.get("took") or {})
    took |= {"collective": float(together.get("took_s") or 0)}
    took |= {"versions": float(reported("motley_doctor_versions").get("took_s") or 0)}
    took |= {"look": sum((look or {}).get("took", {}).values())}
    return NodeReadings(
        name=name,
        address=str(values["motley_address"]),
        managed=boolean(values["motley_manage_host"]),
        expected={
            "subnet": str(values.get("motley_subnet") or "0.0.0.0/0"),
            "disk_gb": float(values.get("motley_preflight_disk_gb", 20)),
            "skew_s": float(values.get("motley_clock_skew_max_s", 10)),
            "firewall": boolean(values.get("motley_firewall_manage", True)),
            "gpu_driver": boolean(values.get("motley_gpu_driver_manage", True)) and values.get("motley_gpu") != "none",
        },
        contact=contact,
        unreachable=gone,
        sudo=refused(root),
        look_failed=message(user) if look is None else "",
        look=look,
        links=links.get("links"),
        link_failed=message(links),
        versions=reported("motley_doctor_versions").get("versions"),
        driver_fault=message(driver),
        collective=together.get("measured"),
        collective_failed=message(together),
        took=took,
    )


def message(answer: TaskResult) -> str:
    failed = answer.get("failed") or answer.get("unreachable")
    words = [answer.get("msg"), answer.get("module_stderr"), answer.get("stderr")]
    return "\n".join(str(text) for text in words if text) or "\n".join(own_words(answer)) if failed else ""


def refused(root: TaskResult) -> str | None:
    """Why sudo did not work; None where no password was there to try it with, empty where it worked."""
    words = message(root)
    return None if "Missing sudo password" in words or not root or root.get("skipped") else words
