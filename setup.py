"""Builds the wheel: packages come from two source roots, this folder and ``connectors/``, and one of them has a native part.

Everything declarative is in ``setup.cfg``. This file exists for two things: two roots, and the extension that may fail to
build. Without a compiler the plain reader is used. The reason of the failure is a file beside the extension, which
``streamgroups doctor`` and the warning of ``sg.register`` contain. pip prints it only with ``-v``.
``STREAMGROUPS_BUILD=native`` in the environment makes the failure an error of the installation.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

_OWN_PACKAGES = find_packages(".", include=["streamgroups", "streamgroups.*"])
_CONNECTOR_PACKAGES = find_packages("connectors")
_NATIVE = "connectors/streamgroups_kafka/csrc"
_READER = ("client", "arrow_batch", "utf8", "rdkafka_api")
_ENCODER = ("encoder", "record_batch", "arrow_records", "crc32c", "murmur2")

#: ``streamgroups_kafka.native`` reads it.
_ERROR_FILE = "native_build_error.txt"
_BUILD_VARIABLE = "STREAMGROUPS_BUILD"


class BuildExtension(build_ext):
    """Stores why a build of the extension has failed."""

    def build_extension(self, ext: Extension) -> None:
        error_file = Path(self.get_ext_fullpath(ext.name)).with_name(_ERROR_FILE)
        error_file.unlink(missing_ok=True)
        try:
            super().build_extension(ext)
        except Exception as error:
            reason = " ".join(str(error).split())
            error_file.parent.mkdir(parents=True, exist_ok=True)
            error_file.write_text(f"{reason}\n", encoding="utf-8")
            sys.stderr.write(f"WARNING: the native extension of streamgroups could not be built: {reason}\n")
            ext.optional = os.environ.get(_BUILD_VARIABLE) != "native"
            raise


setup(
    cmdclass={"build_ext": BuildExtension},
    packages=_OWN_PACKAGES + _CONNECTOR_PACKAGES,
    package_dir={name: f"connectors/{name}" for name in _CONNECTOR_PACKAGES if "." not in name},
    ext_modules=[
        Extension(
            "streamgroups_kafka._native",
            sources=[f"{_NATIVE}/{name}.c" for name in ("module", *_READER, *_ENCODER)],
            depends=[f"{_NATIVE}/{name}.h" for name in (*_READER, *_ENCODER)],
            define_macros=[("Py_LIMITED_API", "0x030A0000"), ("_GNU_SOURCE", None)],
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"],
            py_limited_api=True,
            optional=True,
        )
    ],
    # One wheel for every Python from 3.10 on: the extension keeps to the stable ABI.
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
