"""How facts travel between the processes of Spark.

A query of this library runs in several processes: the user's process with its JVM, a Python process for each source and for
each commit of a sink, and the Python workers of its tasks. Spark connects them by few calls, and passes no facts of its own
between them. This folder contains every other channel. No module outside of it opens a socket, reads Spark's logs or plan, or
depends on the moment at which Spark pickles an object.

Channels
--------

For each channel: its modules, the modules that send and receive by it, when, what, and its security. "Kill" is the effect of
``kill -9`` of a process between both.

Driver RPC
    :Modules: ``rpc``, ``sockets``, ``dataclass_json``
    :From, to: see Messages below
    :When: at the start of a query or of a batch read or write, before each batch, and at its commit
    :Content: the dataclasses of ``streamgroups_spark.messages``, as JSON
    :Kill: the sender gets no reply. It rejects the query or the batch if it needs the reply. See Messages for a restart.
    :Security: Unix sockets in a directory of mode 0700. Both ends prove the key of the session. JSON creates no other classes.

Pickled ledger
    :Modules: ``pickled_ledger``
    :From, to: ``sinks.ledger_registry``, ``source.running_query``
    :When: at the start of a query with a sink that has a ledger
    :Content: the sink with its login, by ``cloudpickle``, as a field of a message of the driver RPC
    :Kill: as for the driver RPC
    :Security: only a process with the key of the session can send it. It never is in a file, an option or a plan.

Accumulator
    :Modules: ``channel``, ``task_reports``, ``user_process``
    :From, to: ``source.observed_times``, ``source.readers``, ``state.stage``, ``source.stage_states``, ``sinks.batch_info``
    :When: a task sends it, and Spark merges it before the task counts as finished
    :Content: observed event times, names of state files, counts of unreadable watermarks
    :Kill: the reports of a failed attempt do not count. If the user's process ends, its queries end too: a commit without the
           reports is an error that a restart repairs.
    :Security: Spark's own connection of a task with the driver

Hand-off files
    :Modules: ``handoff``, ``direct``, ``task_files``
    :From, to: ``source.readers``, ``state.stage``, ``state.stage_task``, ``state.operator_plan``
    :When: within one attempt of a task, between its reader and its operators
    :Content: the plan of the task, watermarks of producers with their offsets, and records if the operator takes them directly
    :Kill: the name contains the attempt, so no other attempt reads the file. A later task of this user on the same host removes
           records that no process uses after 10 minutes, and plans after a week.
    :Security: a directory of mode 0700. The location of states is masked by the key of the session.

Name of a function
    :Modules: ``stage_name``, ``plan``
    :From, to: ``state.stage``, ``state.chains``, ``source.stage_states``, ``source.query_checks``
    :When: when the query is built. Its source reads the name at its start.
    :Content: the properties of an operator with state, as the name of the function of ``mapInArrow``
    :Kill: none, because it is a part of the plan
    :Security: it contains no secret. Spark shows plans to users.

Options of the punctuation source
    :Modules: ``punctuation_options``
    :From, to: ``event_time.with_event_time``, ``event_time.punctuation_source``
    :When: when the query is built. The source of the records and the punctuation source read them at their start.
    :Content: group, settings of event time, and the name under which tasks report it
    :Kill: none, because they are a part of the plan
    :Security: they contain no secret

Plan of the running query
    :Modules: ``active_queries``, ``plan``
    :From, to: Spark's JVM, ``user_process``
    :When: at the start of a source, and when it stops
    :Content: operators, outputs, checkpoint and finished offsets of the query
    :Kill: the driver RPC of the source has no reply
    :Security: py4j of the user's process

Spark's logs
    :Modules: ``checkpoint_log``, ``unstarted_checkpoint``
    :From, to: Spark's JVM, ``sinks.batch_info``, ``source.last_batch``, ``stable_input.batches``
    :When: at the beginning of a batch, and when a query starts or stops
    :Content: the ends of the sources of a batch, its watermark, and whether it is finished
    :Kill: the logs are durable. A batch that has an offset and no commit runs again.
    :Security: that of the checkpoint

Begin of a batch
    :Modules: ``pickled_begin``
    :From, to: ``sinks.base``, ``sinks.kafka_batch``
    :When: Spark pickles the writer of a batch to its tasks, after it has logged the offsets
    :Content: the transaction or the stage of the batch, and its logged offsets. Tasks return them to ``commit``.
    :Kill: the next run begins again, and a higher epoch fences the old transaction
    :Security: Spark's own connection of a task with the driver

Starts of the queries of a session
    :Modules: ``session_positions``
    :From, to: ``source.flow_of_session``, ``source.flow_of_session``
    :When: at the first batch of a query of Spark Connect whose source was registered automatically
    :Content: an offset of each partition from which the query has read
    :Kill: a query that has not planned a batch has read no record. The file is removed after a week.
    :Security: a directory of mode 0700

Figures of the output
    :Modules: ``task_reports``, ``user_process``
    :From, to: ``user_process``, ``ops.metrics_listener``
    :When: after each batch that has such figures, by the driver RPC
    :Content: the number of dead letters for each step, and of divided statements
    :Kill: the figure is lost with its process. The letters are not.
    :Security: that of the driver RPC

Messages
--------

A request for ``bridge.user_process``, ``bridge.active_queries``, ``register`` or ``sinks.ledger_registry`` goes to the user's process only.
A request about a batch (:class:`BatchRequest`, :class:`BatchWritten`, :class:`CommittedRequest`) goes to the socket with the id of the run that planned the
batch, which the offset contains. A batch of an earlier run has no such socket: its query was restarted, with its driver or
without it. Then the request goes to the other processes of the session until one replies. A process that is not meant replies
``None``. A source that stops closes its socket before it leaves its group, so it does not answer for its successor. Two queries
of one process have two sockets, two drivers have two sessions, and all sessions of Spark in one process are one session here. All
other requests go to all processes of the session. Those about a group name it with the id of its cluster, because one session can
read groups of the same name in several clusters. A process answers them one by one, because some replies need the
broker. Only :class:`FiguresRequest` does not wait: Prometheus limits the time of a scrape.

===================== ======================================================================== =========================
request               sent by                                                                  answered by
===================== ======================================================================== =========================
QueryRequest          source.running_query                                                     bridge.active_queries
FinishedRequest       source.last_batch                                                        bridge.active_queries
DurationRequest       source.last_batch                                                        bridge.active_queries
LedgerRequest         source.running_query                                                     sinks.ledger_registry
ParallelismRequest    bridge.rpc                                                               register
ObservationsRequest   source.running_query                                                     bridge.user_process
StateReportsRequest   bridge.task_reports                                                      bridge.user_process
BatchRequest          sinks.batch_info                                                         source.running_query
BatchWritten          sinks.kafka                                                              source.running_query
OutputWritten         sinks.base                                                               bridge.user_process
ClusterRequest        event_time.punctuation_source                                            source.running_query
CommittedRequest      stable_input.batches                                                     source.running_query
TimeRequest           event_time.punctuation_source, event_time.explain, event_time.recorder   source.running_query
ExplanationRequest    event_time.explain                                                       source.running_query
FiguresRequest        ops.metrics_listener                                                     source.running_query
===================== ======================================================================== =========================
"""
