"""Administration: resets of groups, savepoints, and copies of checkpoints, as the command line and ``sg.savepoints`` share them,
and reports (:mod:`streamgroups_admin.reports`).

It plans and applies changes through the ports of a cluster (:mod:`streamgroups.ports`), reads and writes files through
``streamgroups_operators``, and prints nothing: effects of a change go to ``Cluster.notify``. It needs no Spark. Source:
SEMANTICS O1, O2, C1 to C5.
"""
