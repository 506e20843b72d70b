"""The simulated packages hold together: what is depended on exists, a later release is later, modules can be read."""

import subprocess

import pytest

from lab import deb, fake_packages, installed
from lab.deb import Deb
from lab.fake_packages import CURRENT, LATER, Driver, Kernel
from lab.in_host import kernel

RELEASES = [CURRENT, LATER]
SAME_IN_BOTH = ("dkms", "nvidia-settings", "nvidia-prime")
GENERIC = Kernel(track="generic", abi="6.8.0-88", build="6.8.0-88.89")


def all_of(release: fake_packages.Release) -> dict[str, Deb]:
    return {package.name: package for package in fake_packages.packages(release)}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_each_package_once_says_that_it_is_simulated_and_meets_its_needs(
    release: fake_packages.Release,
) -> None:
    made, known = fake_packages.packages(release), all_of(release)
    assert len(known) == len(made)
    for package in [*made, *installed.packages("generic")]:
        assert package.version.endswith("~motleylab") or package.name == "motley-lab-hardware"
        assert "\nDescription: simulated: " in deb.control(package)
    offered = {name.split()[0] for package in made for name in (package.name, *package.provides)}
    assert {need.split()[0] for package in made for need in package.depends} <= offered


def test_what_signed_modules_provide_satisfies_the_driver() -> None:
    known = all_of(CURRENT)
    provided = known["linux-modules-nvidia-570-open-generic"].provides[0]
    assert provided == "nvidia-dkms-570-open (= 570.195.03)"
    low, high = (need for need in known["nvidia-driver-570-open"].depends if need.startswith("nvidia-dkms"))
    for need in (low, high):
        relation, bound = need.partition("(")[2].rstrip(")").split()
        assert newer_or_same("570.195.03", relation, bound)


def newer_or_same(version: str, relation: str, bound: str) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", version, relation, bound], check=False).returncode == 0


def test_the_later_release_upgrades_every_metapackage_and_driver_of_the_current_one() -> None:
    later = all_of(LATER)
    for name, package in all_of(CURRENT).items():
        if name in later and name not in SAME_IN_BOTH:
            assert newer_or_same(later[name].version, "gt", package.version), name
    stays = {name for name in all_of(CURRENT) if name not in later}
    assert stays and all("6.8.0-88" in name or "6.14.0-36" in name for name in stays)


def test_a_branch_that_is_no_longer_made_only_leads_to_the_newest() -> None:
    current = all_of(CURRENT)
    for package in fake_packages.renamed("570", CURRENT):
        assert package.name in current and package.depends == (package.name.replace("570", "580"),)
        assert package.depends[0] in current
        assert newer_or_same(package.version, "gt", current[package.name].version)


@pytest.mark.parametrize(("open_modules", "licence"), [(True, "Dual MIT/GPL"), (False, "NVIDIA")])
def test_a_module_tells_what_the_host_reads_of_it(open_modules: bool, licence: str) -> None:
    built = fake_packages.module(Driver(version="580.95.05", open_modules=open_modules), GENERIC.name, "Canonical Ltd.")
    facts = kernel.module_facts(built)
    assert (facts["version"], facts["license"], facts["signer"]) == ("580.95.05", licence, "Canonical Ltd.")


def test_an_unknown_kernel_track_is_told_with_those_that_exist() -> None:
    with pytest.raises(Exception, match=r"there are: generic, generic-hwe-24\.04"):
        installed.packages("lowlatency")
