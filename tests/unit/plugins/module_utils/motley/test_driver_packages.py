"""What apt says is read rightly, and what follows from it for driver and kernel."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab.in_host import nvidia_smi
from plugins.filter import choose_driver_and_torch as planner
from plugins.module_utils.motley import driver_packages as rules
from plugins.module_utils.motley.driver_packages import Package, Simulated
from train import nvidia_driver

ROLE = Path(__file__).resolve().parents[5] / "roles/motley_gpu_driver"
VARS = yaml.safe_load((ROLE / "vars/main/driver_and_torch_catalogue.yml").read_text())
CATALOGUE: dict[str, Any] = VARS["__motley_gpu_driver_catalogue"]

UBUNTU = {
    "linux-generic-hwe-24.04": Package(
        "6.14.0-36", "linux-image-generic-hwe-24.04 (= 6.14), linux-headers-generic-hwe-24.04 (= 6.14)"
    ),
    "linux-image-generic-hwe-24.04": Package("6.14.0-36", "linux-image-6.14.0-36-generic, linux-firmware"),
    "linux-headers-generic-hwe-24.04": Package("6.14.0-36", "linux-headers-6.14.0-36-generic"),
    "linux-image-6.14.0-36-generic": Package("6.14.0-36", "kmod, linux-base, linux-modules-6.14.0-36-generic"),
    "linux-modules-6.14.0-36-generic": Package("6.14.0-36", ""),
    "linux-headers-6.14.0-36-generic": Package("6.14.0-36", "linux-hwe-6.14-headers-6.14.0-36, libc6"),
    "linux-hwe-6.14-headers-6.14.0-36": Package("6.14.0-36", "coreutils | busybox"),
    "linux-image-6.8.0-88-generic": Package("6.8.0-88", ""),
    "linux-firmware": Package("20240318", ""),
    "linux-base": Package("4.5", ""),
    "linux-libc-dev": Package("6.8.0-88.89", ""),
    "linux-modules-nvidia-580-open-generic-hwe-24.04": Package(
        "6.14.0-36", "linux-modules-nvidia-580-open-6.14.0-36-generic (= 6.14)"
    ),
    "linux-modules-nvidia-580-open-6.14.0-36-generic": Package("6.14.0-36", "linux-image-6.14.0-36-generic"),
    "libnvidia-compute-580": Package("580.95.05-0ubuntu0.24.04.1", "libc6"),
    "libnvidia-compute-580:i386": Package("580.95.05-0ubuntu0.24.04.1", "libc6"),
    "nvidia-container-toolkit": Package("1.17", ""),
    "bash": Package("5.2", "libc6"),
}
DEBIAN = {
    "linux-image-amd64": Package("6.12.57", "linux-image-6.12.57+deb13-amd64 (= 6.12.57-1)"),
    "linux-image-6.12.57+deb13-amd64": Package("6.12.57-1", "kmod, linux-base"),
    "linux-base": Package("4.12", ""),
}
SAID = """\
NOTE: This is only a simulation!
Remv nvidia-driver-570 [570.195.03-0ubuntu1]
Inst libnvidia-compute-580 [580.1-1] (580.2-1 Ubuntu:24.04/noble-updates [amd64]) []
Inst linux-image-6.17.0-14-generic (6.17.0-14.14~24.04.1 Ubuntu:24.04/noble-updates [amd64])
Conf libnvidia-compute-580 (580.2-1 Ubuntu:24.04/noble-updates [amd64])
Purg old-thing [1]
"""


def test_a_simulation_is_read() -> None:
    assert rules.parse_simulation(SAID) == Simulated(
        {"libnvidia-compute-580": "580.2-1", "linux-image-6.17.0-14-generic": "6.17.0-14.14~24.04.1"},
        ("nvidia-driver-570", "old-thing"),
    )


def test_the_installed_metapackages_are_found_whatever_they_are_called() -> None:
    found = rules.kernel_metapackages(UBUNTU, CATALOGUE)
    assert found == ["linux-generic-hwe-24.04", "linux-headers-generic-hwe-24.04", "linux-image-generic-hwe-24.04"]
    assert rules.tracks(found) == ["generic-hwe-24.04"]
    assert rules.kernel_metapackages(DEBIAN, CATALOGUE) == ["linux-image-amd64"]
    assert rules.kernel_metapackages({"bash": Package("5")}, CATALOGUE) == []


def test_the_newest_kernel_is_the_one_that_starts_next() -> None:
    assert [rules.release_of(name) for name in rules.images(UBUNTU, CATALOGUE)] == [
        "6.8.0-88-generic",
        "6.14.0-36-generic",
    ]
    mainline = {
        f"linux-image-unsigned-{release}-generic": Package("6") for release in ("6.9.3-060903", "6.15.1-061501")
    }
    assert [rules.release_of(name) for name in rules.images(UBUNTU | mainline, CATALOGUE)] == [
        "6.8.0-88-generic",
        "6.9.3-060903-generic",
        "6.14.0-36-generic",
        "6.15.1-061501-generic",
    ]


def test_driver_and_kernel_are_protected_and_nothing_else() -> None:
    assert rules.protected(UBUNTU, CATALOGUE) == [
        "libnvidia-compute-580",
        "libnvidia-compute-580:i386",
        "linux-generic-hwe-24.04",
        "linux-headers-generic-hwe-24.04",
        "linux-image-generic-hwe-24.04",
        "linux-modules-nvidia-580-open-6.14.0-36-generic",
        "linux-modules-nvidia-580-open-generic-hwe-24.04",
    ]


@pytest.mark.parametrize(
    ("name", "touched"),
    [
        ("linux-image-6.17.0-14-generic", True),
        ("linux-generic-hwe-24.04", True),
        ("libnvidia-compute-580:i386", True),
        ("cuda-toolkit-13-0", True),
        ("libcuda1", True),
        ("bash", False),
        ("linux-firmware", False),
        ("nvidia-container-toolkit", False),
    ],
)
def test_what_an_upgrade_would_touch(name: str, touched: bool) -> None:
    assert bool(rules.touches(Simulated({name: "9"}), UBUNTU, CATALOGUE)) is touched
    assert bool(rules.touches(Simulated(removes=(name,)), UBUNTU, CATALOGUE)) is touched


def test_side_effects_of_an_installation() -> None:
    removes = ("ubuntu-desktop", "nvidia-driver-570", "nvidia-settings", "nvidia-prime")  # panels are no driver
    foreseen = Simulated({"linux-image-6.17.0-14-generic": "1", "dkms": "3"}, removes)
    assert rules.side_effects(foreseen, UBUNTU, CATALOGUE) == {
        "kernels": ["linux-image-6.17.0-14-generic"],
        "strangers": ["ubuntu-desktop", "nvidia-settings", "nvidia-prime"],
        "undrawn": [],
    }
    assert (
        rules.side_effects(Simulated({"linux-image-6.8.0-88-generic": "6.8.0-88"}), UBUNTU, CATALOGUE)["kernels"] == []
    )


def method(how: str, *, signed: bool, **against: Any) -> dict[str, Any]:
    nothing = {"trouble": "", "kernels": [], "strangers": [], "undrawn": [], "builds": [], "other": ""}
    return {"how": how, "signed": signed, "packages": [], **nothing, **against}


SIGNED, BUILT = method("signed", signed=True), method("built", signed=False)
MOVES = method("follows", signed=True, kernels=["linux-image-6.17.0-14-generic"])


@pytest.mark.parametrize("secure_boot", [True, False])
def test_signed_modules_come_first(secure_boot: bool) -> None:
    params = {"secure_boot": secure_boot, "own_key": False}
    assert rules.choose_modules([MOVES, SIGNED, BUILT], params)["method"] is SIGNED


UNKNOWN = method("signed", signed=True, trouble="Unable to locate package x")


@pytest.mark.parametrize(("secure_boot", "own_key"), [(False, False), (True, True)])
def test_modules_are_built_where_they_will_load(secure_boot: bool, own_key: bool) -> None:
    params = {"secure_boot": secure_boot, "own_key": own_key}
    assert rules.choose_modules([UNKNOWN, BUILT], params)["method"] is BUILT


@pytest.mark.parametrize(
    ("methods", "said", "fix"),
    [
        ([UNKNOWN, BUILT], "on the machine's own screen", "docs/cards.md (Secure Boot)"),
        ([MOVES, BUILT], "would bring another kernel (linux-image-6.17.0-14-generic)", "apt full-upgrade"),
        (
            [method("signed", signed=True, undrawn=["libnvidia-gl-570"])],
            "would remove libnvidia-gl-570, which draws its desktop",
            "",
        ),
    ],
)
def test_where_no_modules_can_be_had_the_reason_is_said_with_the_mend(
    methods: list[dict[str, Any]], said: str, fix: str
) -> None:
    refused = rules.choose_modules(methods, {"secure_boot": True, "own_key": False})
    assert said in refused["error"] and fix in refused["fix"]


AGAINST = st.fixed_dictionaries(
    {
        "trouble": st.sampled_from(["", "no"]),
        "kernels": st.sampled_from([[], ["k"]]),
        "strangers": st.sampled_from([[], ["s"]]),
        "undrawn": st.sampled_from([[], ["u"]]),
        "builds": st.sampled_from([[], ["b"]]),
        "other": st.sampled_from(["", "v"]),
    }
)


@given(st.lists(st.tuples(st.booleans(), AGAINST), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_whatever_is_chosen_harms_nothing(made: list[Any], secure_boot: bool, own_key: bool) -> None:
    methods = [method(str(place), signed=signed, **against) for place, (signed, against) in enumerate(made)]
    chosen = rules.choose_modules(methods, {"secure_boot": secure_boot, "own_key": own_key})
    if "method" not in chosen:
        assert chosen["error"] and chosen["fix"]
        return
    taken = chosen["method"]
    assert not (taken["trouble"] or taken["kernels"] or taken["strangers"] or taken["undrawn"] or taken["other"])
    assert taken["signed"] or not secure_boot or own_key
    assert not (taken["signed"] and taken["builds"])


def test_the_version_of_modules_is_read_from_what_they_need() -> None:
    need = "linux-image-6.14.0-36-generic, nvidia-kernel-common-580 (<= 580.95.05-1),"
    need += " nvidia-kernel-common-580 (>= 580.95.05)"
    assert rules.least_of(need, "nvidia-kernel-common-580") == "580.95.05"
    assert rules.least_of("libc6", "nvidia-kernel-common-580") == ""


# -- the proof ---------------------------------------------------------------------------------------------------


def look(**changes: Any) -> dict[str, Any]:
    good = {
        "cards": [{"bus": "0000:01:00.0", "device": "2c05", "lost": False}],
        "installed": {"version": "580.95.05", "open": True},
        "loaded": {"version": "580.95.05", "open": True},
        "module_signer": "Canonical Ltd. Kernel Module Signing",
        "secure_boot": True,
        "smi": {"cards": [{"bus": "00000000:01:00.0", "name": "x", "driver": "580.95.05"}], "trouble": ""},
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cards": [{"bus": "0000:01:00.0", "device": "2c05", "lost": True}]}, "fallen off the bus"),
        ({"installed": {}}, "no driver is installed"),
        ({"loaded": {}}, "its module is not loaded"),
        ({"loaded": {}, "module_signer": "my own key"}, "Secure Boot does not let its module load"),
        ({"loaded": {"version": "570.195.03"}}, "the module is 570.195.03, the library 580.95.05"),
        ({"smi": {"cards": [], "trouble": "No devices were found"}}, "nvidia-smi says: No devices were found"),
        ({"smi": {"cards": [], "trouble": ""}}, "does not see the card at 0000:01:00.0"),
    ],
)
def test_what_is_wrong_is_named_with_its_mend(changes: dict[str, Any], said: str) -> None:
    what, fix = rules.proof_fault(look(**changes))
    assert said in what and fix
    assert rules.proof_fault(look()) == ("", ""), "a driver that serves every card"


# -- names -------------------------------------------------------------------------------------------------------


def test_package_names_of_a_server_and_of_a_desktop() -> None:
    kernel = {
        "tracks": ["generic-hwe-24.04"],
        "next": "6.14.0-36-generic",
        "headers": ["linux-headers-6.14.0-36-generic"],
    }
    seen = {"names": "ubuntu", "desktop": False, "kernel": kernel}
    names = planner.packages({"open": True}, "580", seen, CATALOGUE)
    assert [method["packages"] for method in names["methods"]] == [
        ["nvidia-headless-580-open", "nvidia-utils-580", "linux-modules-nvidia-580-open-generic-hwe-24.04"],
        ["nvidia-headless-no-dkms-580-open", "nvidia-utils-580", "linux-modules-nvidia-580-open-6.14.0-36-generic"],
        ["nvidia-headless-580-open", "nvidia-utils-580", "nvidia-dkms-580-open", "linux-headers-6.14.0-36-generic"],
    ]
    desktop = planner.packages({"open": False}, "570", {**seen, "desktop": True}, CATALOGUE)["methods"][0]["packages"]
    assert desktop == ["nvidia-driver-570", "linux-modules-nvidia-570-generic-hwe-24.04"]
    debian = planner.packages({"open": True}, "580", {**seen, "names": "debian"}, CATALOGUE)
    assert [method["signed"] for method in debian["methods"]] == [False]


# -- a desktop ---------------------------------------------------------------------------------------------------

DESKTOP = UBUNTU | {
    "nvidia-driver-570": Package("570.195.03-0ubuntu1", "libnvidia-gl-570"),
    "libnvidia-gl-570": Package("570.195.03-0ubuntu1"),
    "libnvidia-gl-570:i386": Package("570.195.03-0ubuntu1"),
    "xserver-xorg-video-nvidia-570": Package("570.195.03-0ubuntu1"),
}
KERNEL = {"tracks": ["generic"], "next": "6.8.0-88-generic", "headers": ["linux-headers-6.8.0-88-generic"]}


def test_what_draws_a_desktop_is_seen_in_what_is_installed() -> None:
    drawn = ["libnvidia-gl-570", "libnvidia-gl-570:i386", "xserver-xorg-video-nvidia-570"]
    assert rules.draws(DESKTOP, CATALOGUE) == drawn
    assert rules.draws(UBUNTU, CATALOGUE) == []


@pytest.mark.parametrize("display_manager", [True, False])
def test_every_way_to_a_driver_brings_what_draws_a_desktop(display_manager: bool) -> None:
    seen = {"names": "ubuntu", "desktop": display_manager, "draws": rules.draws(DESKTOP, CATALOGUE), "kernel": KERNEL}
    for method in planner.packages({"open": True}, "580", seen, CATALOGUE)["methods"]:
        names = set(method["packages"])
        assert "nvidia-driver-580-open" in names or {"libnvidia-gl-580", "xserver-xorg-video-nvidia-580"} <= names
        assert "libnvidia-gl-580:i386" in names, "games of 32 bits draw by it"


def test_what_draws_a_desktop_is_not_removed_without_its_like() -> None:
    gone = ("nvidia-driver-570", "libnvidia-gl-570", "libnvidia-gl-570:i386")

    def undrawn(*comes: str) -> list[str]:
        foreseen = Simulated(dict.fromkeys(comes, "580.95.05"), gone)
        return list(rules.side_effects(foreseen, DESKTOP, CATALOGUE)["undrawn"])

    assert undrawn("libnvidia-compute-580") == ["libnvidia-gl-570", "libnvidia-gl-570:i386"]
    assert undrawn("libnvidia-gl-580") == ["libnvidia-gl-570:i386"]
    assert undrawn("libnvidia-gl-580", "libnvidia-gl-580:i386") == []
    assert undrawn("libnvidia-gl", "libnvidia-gl:i386") == [], "as NVIDIA's own packages are called"


# -- Secure Boot -------------------------------------------------------------------------------------------------


def test_a_module_that_is_loaded_proves_its_key() -> None:
    """Secure Boot let it in: whose key it is signed with does not matter then."""
    runs = look(module_signer="somebody's own key", loaded_signer="somebody's own key")
    assert rules.key_is_known("somebody's own key", runs)
    assert rules.key_is_known("", look(loaded_signer="")), (
        "validation can be switched off (mokutil --disable-validation)"
    )
    assert not rules.key_is_known("another key", runs)
    assert not rules.key_is_known("somebody's own key", look(loaded={}, loaded_signer=None))
    assert rules.key_is_known("Canonical Ltd. Kernel Module Signing", look(loaded={}, loaded_signer=None))


# -- versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older", "newer"),
    [("570.9", "570.133.20"), ("570.26", "570.124.06"), ("99.1", "580.65.06"), ("580.95", "580.95.05")],
)
def test_driver_versions_are_compared_by_number_everywhere(older: str, newer: str, tmp_path: Path) -> None:
    assert nvidia_driver.older(older, newer)
    assert not nvidia_driver.older(newer, older) and not nvidia_driver.older(older, older)
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for version in (older, newer):
        (libraries / f"libnvidia-ml.so.{version}").touch()
    assert nvidia_smi.library_version(libraries) == newer
    newest = nvidia_driver.library(tmp_path)
    assert newest and nvidia_driver.library_version(newest) == newer


# -- a branch that is only a name --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "depends", "leads"),
    [
        ("nvidia-driver-570-open", "nvidia-driver-580-open", "580"),
        ("libnvidia-compute-570", "libnvidia-compute-580 (= 580.95.05-0ubuntu0.24.04.1)", "580"),
        ("libnvidia-compute-570", "libc6 (>= 2.34)", ""),
        ("nvidia-utils-570", "libnvidia-compute-570 (= 570.195.03-0ubuntu1)", ""),
        ("nvidia-driver-570", "", ""),
    ],
)
def test_a_transitional_package_is_known_by_what_it_needs(name: str, depends: str, leads: str) -> None:
    assert rules.leads_to(name, depends) == leads
