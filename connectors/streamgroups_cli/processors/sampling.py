"""``streamgroups processors sample``: the rows that a processor of an instance computes from its next records.

The command computes them in its own process. A worker that answered through the topic of the instance would store data of users
in this topic. Source: SEMANTICS P2, W17.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.instances.entries import group_of
from streamgroups.printable import listed
from streamgroups.processors.reading import processor_of
from streamgroups_cli.instance_log import InstanceOptions, open_instance, require_defined
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, print_message
from streamgroups_cli.processors.previewed_rows import print_rows
from streamgroups_cli.spark_settings import Conf, Master, spark_session, spark_settings


@with_options
def sample(
    options: InstanceOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The processor.", show_default=False)],
    records: Annotated[
        int,
        typer.Argument(
            metavar="N", min=1, max=1_000_000, help="How many records to read, divided among the partitions."
        ),
    ] = 20,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the rows of the next batch of a processor: of the next N records after the committed offsets of its group.

    This command computes the rows, in a Spark application of its own. It reads the definition from the instance, and the records
    as bounded data. The running processor is not changed, and reads the same records: the command joins no group, commits no
    offset, and writes no output. It does not read the states of the processor, so windows contain only these records. Connections
    and functions of the processor must exist on this machine. At most 1,000 rows are shown.

    Exit code: 0, also without available records.
    """
    settings = spark_settings(master, conf)
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, [name], instance.name)
    from streamgroups_spark.processors.previewing import next_ranges

    declared = processor_of(state.definitions[name].content)
    ranges = next_ranges(declared, records, instance=options.name)
    group = group_of(options.name, name)
    if not any(map(len, ranges)):
        print_message(f"Group '{group}' has no lag. No records are available after its committed offsets.")
    else:
        print_message(
            f"Records after the committed offsets of group '{group}': {listed([str(it) for it in ranges if len(it)])}."
        )
    with spark_session(f"{group}-sample", settings) as spark:
        print_rows(declared, spark, ranges, options.name, output)
