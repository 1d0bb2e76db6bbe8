"""Builds the wheel: packages come from two source roots, this folder and ``connectors/``.

Everything declarative is in ``setup.cfg``. This file exists for what it cannot say: two roots (and, later, the optional
native extension).
"""

from setuptools import find_packages, setup

_OWN_PACKAGES = find_packages(".", include=["streamgroups", "streamgroups.*"])
_CONNECTOR_PACKAGES = find_packages("connectors")

setup(
    packages=_OWN_PACKAGES + _CONNECTOR_PACKAGES,
    package_dir={name: f"connectors/{name}" for name in _CONNECTOR_PACKAGES if "." not in name},
    package_data={name: ["py.typed"] for name in ["streamgroups", *_CONNECTOR_PACKAGES]},
)
