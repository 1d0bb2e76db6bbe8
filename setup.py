"""Builds the wheel: packages come from two source roots, this folder and ``connectors/``, and one of them has a native part.

Everything declarative is in ``setup.cfg``. This file exists for what it cannot say: two roots, and the extension that may fail
to build. Without a compiler there is none; the plain reader then does its work and ``streamgroups doctor`` says so.
"""

from setuptools import Extension, find_packages, setup

_OWN_PACKAGES = find_packages(".", include=["streamgroups", "streamgroups.*"])
_CONNECTOR_PACKAGES = find_packages("connectors")
_NATIVE = "connectors/streamgroups_kafka/csrc"
_READER = ("client", "arrow_batch", "utf8", "rdkafka_api")
_ENCODER = ("encoder", "record_batch", "arrow_records", "crc32c", "murmur2")

setup(
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
