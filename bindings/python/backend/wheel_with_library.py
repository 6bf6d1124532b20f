"""Build backend: puts the library and its headers into the package, then lets maturin go on.

The environment variable RADIXKV_LIBRARY names a library that was built already, e.g. one with CUDA
kernels; otherwise cargo builds it, into the target folder of the repository.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import maturin

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "python" / "radixkv"


def library() -> Path:
    """The shared library, built if nobody did."""
    given = os.environ.get("RADIXKV_LIBRARY")
    if given:
        return Path(given)
    target = Path(os.environ.get("RADIXKV_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "build", "--locked", "--release", "--lib", "--target-dir", str(target)]
    subprocess.run(command, cwd=ROOT, check=True)
    # What is built for a target that is named lies in a folder of its own.
    return target / os.environ.get("CARGO_BUILD_TARGET", "") / "release" / "libradixkv.so"


@contextmanager
def staged() -> Iterator[None]:
    """Library and headers are where the wheel takes them from: one place for all builds of this
    tree, whatever their target folders, so that one at a time has it."""
    with open(HERE / "pyproject.toml") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        stage()
        yield


def stage() -> None:
    for folder in ("lib", "include"):
        shutil.rmtree(PACKAGE / folder, ignore_errors=True)
    (PACKAGE / "lib").mkdir()
    staged = PACKAGE / "lib" / "libradixkv.so"
    shutil.copyfile(library(), staged)
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, "--strip-debug", str(staged)], check=True)
    shutil.copytree(ROOT / "include", PACKAGE / "include")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        shutil.copyfile(ROOT / name, PACKAGE / "lib" / name)


def build_wheel(directory: str, settings: Any = None, metadata: Any = None) -> str:
    with staged():
        return str(maturin.build_wheel(directory, settings, metadata))


def build_editable(directory: str, settings: Any = None, metadata: Any = None) -> str:
    with staged():
        return str(maturin.build_editable(directory, settings, metadata))


def build_sdist(directory: str, settings: Any = None) -> str:
    raise SystemExit("the library's source lies outside this folder: build a wheel")


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
