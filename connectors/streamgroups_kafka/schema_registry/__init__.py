"""The client of schema registries."""
