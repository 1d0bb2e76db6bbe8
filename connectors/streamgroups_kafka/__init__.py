"""Kafka: the only package that imports a Kafka client. Members, readers, offsets, and their configuration.

* **The native reader is C over the stable ABI.** Only two of its files use Python, so one wheel serves all versions,
  and sanitizers cover it. It loads librdkafka at run time, without headers and without a second copy. Each partition
  has its own queue. Records that were fetched beyond the end of a range wait there for the next batch: 0.4 ms for 800
  records, where a new fetch took 12 ms. Python code interprets the errors of both readers
  (``streamgroups_kafka/read/range_reader``).
* **Record batches are encoded natively and compressed by pyarrow** (``docs/encoder.rst``). librdkafka cannot
  share one producer id among tasks. kafka-python's builder encodes 0.08 million records a second, and the extension 8
  million. pyarrow is a dependency anyway and has all four codecs, so the extension links to no library.
* **Clients try to connect every 25 milliseconds** (``reconnect.backoff.ms=50``; librdkafka uses half). With the default
  of librdkafka each client of a query waited once for 50 ms. While no broker answers, each client retries at this rate,
  and librdkafka logs most of these failures. So the value is not lower. After an outage clients retry at least every
  second (``reconnect.backoff.max.ms=1000``, the default of the Java client). librdkafka would wait for up to 10 seconds
  and kafka-python for 30, which is the timeout of transaction requests.
* **librdkafka requests the tokens for client credentials itself.** With a callback, confluent-kafka sleeps for a second in
  the constructor of each client. Token providers need the callback. The native reader sets tokens without it. A token is
  requested before a client is created, because librdkafka hides the reason of a failure for 10 seconds.
* **A consumer reads committed offsets.** librdkafka's ListConsumerGroupOffsets ends the process with a segmentation
  fault while the group has no coordinator, as on a new cluster (librdkafka#5040).
* **Members send heartbeats every 250 milliseconds** with the classic protocol. librdkafka has a default of 3 seconds. A
  member receives a rebalance with its next heartbeat, and a join needs two of them in a row. Measured with 60 members,
  each heartbeat took 0.06 to 0.1 ms of the processors of the broker. A query without new records sends up to 29 other
  requests a second. ``kafka.heartbeat.interval.ms`` sets another interval.
* **A rebalance does not wait for librdkafka** (``streamgroups_kafka/membership/prompt_rebalance``). librdkafka sends two
  JoinGroup requests at least a second apart, unless it receives metadata in between. So a member requests the metadata of
  one topic after each rebalance. With KIP-848 a new member repeats ``subscribe`` for some seconds, which sends a heartbeat
  at once. The broker sets the interval of all others. Without Spark, a second member had its partitions after 1.5 s with
  heartbeats every second, 1.1 s with the new interval, and 0.5 s with both (medians of four joins).
"""
