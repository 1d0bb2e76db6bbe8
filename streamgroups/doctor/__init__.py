"""What is installed and reachable, judged: facts in, findings with a state and a remedy out.

Used by ``streamgroups_cli.doctor``. The facts are found by the probes of the connectors; nothing here looks anything up.
"""
