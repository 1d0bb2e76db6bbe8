"""Requests between processes of one user on one machine, as JSON over Unix sockets.

``streamgroups_spark`` connects the processes of a Spark session, and ``streamgroups_cli`` the commands and the
process of a cursor instance.
"""
