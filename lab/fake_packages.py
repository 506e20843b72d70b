"""Simulated drivers and kernels as packages: Ubuntu 24.04's names, relations and version pattern, no content.

Two releases of each, so that a hold can be proven: CURRENT is what the repository offers from the start, LATER is what
an upgrade brings once it has been published. `renamed` is what becomes of a branch that is no longer made: packages of
its names that only lead to the next branch. Every version ends in ~motleylab.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import module_file
from lab.deb import Deb

PROGRAMS = Path(__file__).parent / "in_host"
MARK = "~motleylab"
CUDA = {"570": "12.8", "580": "13.0"}
# What every installation of a branch shares, and what draws a desktop; each named with its branch.
COMPUTE_PARTS = (
    "libnvidia-cfg1",
    "libnvidia-compute",
    "libnvidia-decode",
    "nvidia-compute-utils",
    "nvidia-kernel-common",
    "nvidia-kernel-source",
)
DESKTOP_PARTS = (
    "libnvidia-gl",
    "libnvidia-extra",
    "libnvidia-encode",
    "libnvidia-fbc1",
    "xserver-xorg-video-nvidia",
)
PARTS = (*COMPUTE_PARTS, *DESKTOP_PARTS, "libnvidia-common", "nvidia-utils")
OF_A_FLAVOUR = ("nvidia-driver", "nvidia-headless", "nvidia-headless-no-dkms", "nvidia-dkms")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    track: str
    """What the metapackages are called by: linux-TRACK."""
    abi: str
    build: str

    @property
    def name(self) -> str:
        return f"{self.abi}-generic"

    @property
    def version(self) -> str:
        return f"{self.build}{MARK}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    version: str
    open_modules: bool

    @property
    def branch(self) -> str:
        return self.version.split(".")[0]

    @property
    def flavour(self) -> str:
        """570 or 570-open: how packages that carry or need modules are called."""
        return self.branch + ("-open" if self.open_modules else "")

    @property
    def package_version(self) -> str:
        return f"{self.version}-0ubuntu0.24.04.1{MARK}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    drivers: tuple[str, ...]
    kernels: tuple[Kernel, ...]


CURRENT = Release(
    drivers=("570.195.03", "580.95.05"),
    kernels=(
        Kernel(track="generic", abi="6.8.0-88", build="6.8.0-88.89"),
        Kernel(track="generic-hwe-24.04", abi="6.14.0-36", build="6.14.0-36.36~24.04.1"),
    ),
)
LATER = Release(
    drivers=("570.211.01", "580.126.09"),
    kernels=(
        Kernel(track="generic", abi="6.8.0-90", build="6.8.0-90.91"),
        Kernel(track="generic-hwe-24.04", abi="6.17.0-14", build="6.17.0-14.14~24.04.1"),
    ),
)


def packages(release: Release) -> list[Deb]:
    made = [package for kernel in release.kernels for package in kernel_packages(kernel)]
    for version in release.drivers:
        made += _shared_by_flavours(version)
        for open_modules in (False, True):
            driver = Driver(version=version, open_modules=open_modules)
            made += _drivers(driver)
            made += [package for kernel in release.kernels for package in _signed_modules(driver, kernel)]
    return [*made, _dkms(), _settings(), _prime()]


def renamed(old: str, release: Release) -> list[Deb]:
    """A branch that is no longer made: each of its names only leads to the same package of the newest branch."""
    newest = Driver(version=release.drivers[-1], open_modules=False)
    names = [(f"{part}-{{}}", newest.package_version) for part in PARTS]
    for flavour in ("", "-open"):
        names += [(f"{part}-{{}}{flavour}", newest.package_version) for part in OF_A_FLAVOUR]
        for kernel in release.kernels:
            names.append((f"linux-modules-nvidia-{{}}{flavour}-{kernel.track}", kernel.version))
    return [
        Deb(
            name=name.format(old),
            version=version.replace(MARK, f"+1{MARK}"),
            summary=f"transitional package for {name.format(newest.branch)}",
            depends=(name.format(newest.branch),),
        )
        for name, version in names
    ]


# -- kernels -------------------------------------------------------------------------------------------------


def kernel_packages(kernel: Kernel) -> Iterator[Deb]:
    """linux-generic → linux-image-generic → linux-image-6.8.0-88-generic, and headers likewise."""
    track, name, version = kernel.track, kernel.name, kernel.version
    same = f"(= {version})"
    needs = (f"linux-image-{track} {same}", f"linux-headers-{track} {same}")
    yield Deb(name=f"linux-{track}", version=version, summary="Linux kernel and headers, newest", depends=needs)
    for part in ("image", "headers"):
        newest = (f"linux-{part}-{name}",)
        yield Deb(name=f"linux-{part}-{track}", version=version, summary=f"newest kernel {part}", depends=newest)
    yield Deb(
        name=f"linux-image-{name}",
        version=version,
        summary="kernel image",
        files={
            f"boot/vmlinuz-{name}": "simulated\n",
            # depmod asks for these; no module is built in, none but the graphics driver's exists.
            **{f"lib/modules/{name}/modules.{list_}": "" for list_ in ("order", "builtin", "builtin.modinfo")},
        },
        scripts={
            "postinst": f"depmod {name}\ntouch /run/reboot-required\n",
            "postrm": f"cd /lib/modules && rm -f {name}/modules.* && rmdir --ignore-fail-on-non-empty {name} || true\n",
        },
    )
    hooks = f"[ ! -d /etc/kernel/header_postinst.d ] || run-parts --arg={name} /etc/kernel/header_postinst.d\n"
    yield Deb(
        name=f"linux-headers-{name}",
        version=version,
        summary="kernel headers",
        files={f"usr/src/linux-headers-{name}/README": "simulated\n"},
        scripts={"postinst": hooks},
    )


# -- drivers -------------------------------------------------------------------------------------------------


def module(driver: Driver, kernel: str, signer: str) -> bytes:
    return module_file.build(
        {
            "version": driver.version,
            "license": "Dual MIT/GPL" if driver.open_modules else "NVIDIA",
            "description": "simulated by the Motley lab",
            "name": "nvidia",
            "vermagic": f"{kernel} SMP preempt mod_unload modversions",
            "signer": signer,
        }
    )


def _shared_by_flavours(version: str) -> Iterator[Deb]:
    """The user side of a branch, the same for open and proprietary modules; one branch at a time can be installed."""
    driver = Driver(version=version, open_modules=False)
    branch = driver.branch

    def of_same_build(name: str) -> str:
        return f"{name}-{branch} (= {driver.package_version})"

    def package(name: str, summary: str, *needs: str, files: dict[str, str] | None = None) -> Deb:
        return Deb(
            name=f"{name}-{branch}",
            version=driver.package_version,
            summary=summary,
            depends=tuple(map(of_same_build, needs)),
            replaces_all=name,
            files=files or {},
        )

    folder = "usr/lib/x86_64-linux-gnu"
    libraries = {f"{folder}/{name}.so.{version}": "simulated\n" for name in ("libnvidia-ml", "libcuda")}
    drawing = {f"{folder}/libGLX_nvidia.so.{version}": "simulated\n"}
    program = {"usr/bin/nvidia-smi": _nvidia_smi(branch)}
    yield package("libnvidia-common", "files shared by the libraries")
    yield package("libnvidia-cfg1", "configuration library")
    yield package("libnvidia-compute", "NVML and CUDA driver libraries", files=libraries)
    yield package("libnvidia-decode", "video decoding", "libnvidia-compute")
    yield package("libnvidia-encode", "video encoding", "libnvidia-decode")
    yield package("libnvidia-extra", "extra libraries")
    yield package("libnvidia-fbc1", "framebuffer capture")
    yield package("libnvidia-gl", "OpenGL, GLX, EGL and Vulkan", "libnvidia-common", files=drawing)
    yield package("xserver-xorg-video-nvidia", "X driver", "libnvidia-cfg1")
    yield package("nvidia-kernel-common", "files shared by the kernel modules")
    yield package("nvidia-kernel-source", "source of the kernel modules")
    yield package("nvidia-utils", "nvidia-smi", "libnvidia-compute", files=program)
    yield package("nvidia-compute-utils", "persistence daemon", "libnvidia-compute")


def _nvidia_smi(branch: str) -> str:
    program = (PROGRAMS / "nvidia_smi.py").read_text()
    return program.replace("CUDA_VERSION = None", f'CUDA_VERSION = "{CUDA[branch]}"')


def _drivers(driver: Driver) -> Iterator[Deb]:
    flavour, branch, version = driver.flavour, driver.branch, driver.package_version
    # What the signed modules provide carries the bare driver version: any build of that driver satisfies it.
    modules = (f"nvidia-dkms-{flavour} (>= {driver.version})", f"nvidia-dkms-{flavour} (<= {driver.version}-1)")
    headless = tuple(f"{part}-{branch} (= {version})" for part in COMPUTE_PARTS)
    desktop = tuple(f"{part}-{branch} (= {version})" for part in (*DESKTOP_PARTS, "nvidia-utils"))
    for name, needs in {
        "nvidia-driver": (*modules, *headless, *desktop),
        "nvidia-headless": (*modules, f"nvidia-headless-no-dkms-{flavour} (= {version})"),
        "nvidia-headless-no-dkms": headless,
    }.items():
        summary = "NVIDIA driver" + name.removeprefix("nvidia").replace("-", " ").removesuffix(" driver")
        whole = name == "nvidia-driver"
        yield Deb(
            name=f"{name}-{flavour}",
            version=version,
            summary=summary,
            depends=needs,
            recommends=("nvidia-settings", "nvidia-prime (>= 0.8)") if whole else (),
            replaces_all="nvidia-driver-binary" if whole else "",
        )
    source = f"usr/src/nvidia-{driver.version}"
    yield Deb(
        name=f"nvidia-dkms-{flavour}",
        version=version,
        summary="NVIDIA modules, built and signed on this machine",
        depends=("dkms", f"nvidia-kernel-common-{branch} (= {version})"),
        replaces_all="nvidia-dkms-kernel",
        files={
            f"{source}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{driver.version}"\n',
            f"{source}/nvidia.ko": module(driver, "any", "this machine's own Secure Boot Module Signature key"),
        },
        scripts={"postinst": "dkms autoinstall\n", "prerm": f"dkms remove nvidia/{driver.version} --all\n"},
    )


def _signed_modules(driver: Driver, kernel: Kernel) -> Iterator[Deb]:
    """What Canonical builds and signs for one kernel, and the metapackage that follows the newest kernel."""
    flavour = driver.flavour
    exact = f"linux-modules-nvidia-{flavour}-{kernel.name}"
    folder = f"lib/modules/{kernel.name}/kernel/nvidia-{flavour}"
    yield Deb(
        name=exact,
        version=kernel.version,
        summary=f"NVIDIA {driver.version} modules for {kernel.name}, signed",
        depends=(f"linux-image-{kernel.name}", f"nvidia-kernel-common-{driver.branch} (>= {driver.version})"),
        files={f"{folder}/nvidia.ko": module(driver, kernel.name, "Canonical Ltd. Kernel Module Signing")},
        scripts=dict.fromkeys(("postinst", "postrm"), f"[ ! -d /lib/modules/{kernel.name} ] || depmod {kernel.name}\n"),
    )
    yield Deb(
        name=f"linux-modules-nvidia-{flavour}-{kernel.track}",
        version=kernel.version,
        summary=f"NVIDIA {driver.branch} modules for the newest kernel",
        depends=(f"{exact} (= {kernel.version})",),
        provides=(f"nvidia-dkms-{flavour} (= {driver.version})", "nvidia-prebuilt-kernel"),
    )


def _dkms() -> Deb:
    program = (PROGRAMS / "dkms.sh").read_text()
    hook = '#!/bin/sh\nexec dkms autoinstall -k "$1"\n'
    return Deb(
        name="dkms",
        version=f"3.0.11-1ubuntu13{MARK}",
        summary="builds modules for every kernel",
        files={"usr/sbin/dkms": program, "etc/kernel/header_postinst.d/dkms": hook},
    )


def _settings() -> Deb:
    return Deb(name="nvidia-settings", version=f"510.47.03-0ubuntu4{MARK}", summary="a panel for the desktop")


def _prime() -> Deb:
    program = (PROGRAMS / "prime_select.sh").read_text()
    return Deb(
        name="nvidia-prime",
        version=f"0.8.17.2{MARK}",
        summary="which graphics draw a laptop's desktop",
        files={"usr/bin/prime-select": program},
    )
