"""The topic of an instance on a cluster: creation, reading and writing. Source: :mod:`streamgroups.instances`."""
