"""The version, where setup.cfg and the package both find it."""

__version__ = "0.1.0"
