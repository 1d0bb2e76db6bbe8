"""``streamgroups processors list``: the processors of an instance with their states. Source: SEMANTICS P2."""

from __future__ import annotations

from streamgroups.instances.overview import overview
from streamgroups_cli.instance_log import InstanceOptions, open_instance
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.replica_tables import replica_document, replica_table


@with_options
def list_processors(options: InstanceOptions, output: OutputOption = Output.table) -> None:
    """List the processors of an instance. A processor with replicas has a line for each."""
    with open_instance(options, options.name) as instance:
        found = overview(instance.name, instance.state(), instance.cluster.now_ms())
    emit(
        output,
        document=lambda: {"processors": [replica_document(it) for it in found.replicas]},
        tables=lambda: [replica_table(found.replicas)],
    )
