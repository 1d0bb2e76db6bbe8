"""The version, read by setup.cfg and by the package."""

__version__ = "0.1.0"
