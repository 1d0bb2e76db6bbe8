/*
 * A librdkafka client that reads ranges of offsets into Arrow batches.
 *
 * Used by module.c. No Python here: everything may run without the GIL, by one thread at a time. It is librdkafka's simple
 * consumer, which assigns itself partitions and needs neither a group nor a coordinator. What goes wrong is an event for
 * Python to judge: the rules are the plain reader's, written once, in range_reader.py.
 *
 * The client outlives a reading, so that connections, metadata and what was fetched beyond a range's end serve the next
 * micro-batch. Each partition has a queue of its own: when its range is read nobody empties the queue, and
 * librdkafka stops to fetch for it at queued.max.messages.kbytes or queued.min.messages.
 */
#ifndef STREAMGROUPS_CLIENT_H
#define STREAMGROUPS_CLIENT_H

#include <limits.h>
#include <pthread.h>

#include "arrow_batch.h"

#define TEXT_SIZE 512
/* No error code of Kafka or librdkafka: -1 is UNKNOWN_SERVER_ERROR. */
#define NO_MEMORY INT_MIN
#define MAX_EVENTS 16
#define CHUNK 512

/* A partition that is fetched, in this reading or for the next one. */
typedef struct {
    int topic; /* index into Client.topics */
    int32_t partition;
    rd_kafka_queue_t *queue;
    int64_t next_offset; /* of what will come out of the chunk and the queue */
    int in_use;          /* by the reading that is being started */
    rd_kafka_message_t *chunk[CHUNK];
    int chunk_next, chunk_size;
} Partition;

/* One range [next_offset, end_offset) of a partition; `done` once its end has been passed, or was given up. */
typedef struct {
    int32_t partition;
    int64_t next_offset;
    int64_t end_offset;
    int topic;
    Partition *fetched; /* NULL once it is done and its partition no longer fetched */
    int done;
    int flaws;                     /* of its records since the last fill: a sum of BAD_... */
    int64_t flaw_offsets[N_FLAWS]; /* the first record with each of them */
} Range;

/* Something librdkafka said: of a range, or of the client as a whole (range -1). */
typedef struct {
    int range;
    int code;
    char text[TEXT_SIZE];
} Event;

typedef struct {
    char *name;
    rd_kafka_topic_t *rkt;
} Topic;

typedef struct {
    rd_kafka_t *rk;
    Topic *topics;
    int n_topics;
    Partition **partitions;
    int n_partitions;

    /* The reading. */
    Range *ranges;
    int n_ranges;
    int n_open;
    int turn; /* the range that is served next */
    Batch batch;
    int64_t max_rows;
    size_t max_bytes;
    Event events[MAX_EVENTS];
    int n_events;
    int is_full; /* the next record would pass `max_bytes`, and waits in its chunk */

    /* Set by librdkafka's threads when an empty queue got something. */
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int has_arrived;
} Client;

/* Takes a configuration over, whatever comes of it. Returns NULL with the reason in `why`, which is empty without memory. */
Client *client_new(rd_kafka_conf_t *conf, char *why, size_t why_size);

/* Ends everything. */
void client_free(Client *client);

/*
 * Begins a reading. `topics` names the topic of each range; a partition may occur once. Returns 0, or a librdkafka error code
 * (NO_MEMORY without memory) after which there is no reading.
 */
int client_start(Client *client, const char *const *topics, const Range *ranges, int n_ranges, const Field *fields,
                 int n_fields, int64_t max_rows, size_t max_bytes);

/* Ends the reading: rows that were not taken are dropped, partitions of which nothing is at hand are fetched no more. */
void client_stop(Client *client);

/*
 * Reads until the batch is full, all ranges are done, something happened (`events`), or nothing came for `timeout_ms`. Returns 0, or -1
 * without memory.
 */
int client_fill(Client *client, int timeout_ms);

/* Whether the batch must be taken before more can be read. */
int client_full(const Client *client);

/* Goes on with a range elsewhere, or anew. Returns 0, a librdkafka error code, or NO_MEMORY. */
int client_seek(Client *client, int range, int64_t next_offset);

/* Gives a range up. */
void client_end(Client *client, int range);

#endif
