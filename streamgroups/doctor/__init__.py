"""Checks of the installation, the machine and the cluster: from facts to check results with a state and a remedy.

``streamgroups_cli.doctor`` calls this package. The probes of the connectors collect the facts; this package does no
I/O.
"""
