/* See client.h. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NO_RANGE (-1)
/* A queue that is at most so many offsets behind a range is read up to it; else the partition is fetched anew. */
#define MAX_SKIPPED 20000

/* ---- what librdkafka says ----------------------------------------------------------------------------------------- */

/* A full list keeps its first entries: the cause comes before its consequences. */
static void event_add(Client *client, int range, int code, const char *text) {
    if (client->n_events == MAX_EVENTS)
        return;
    Event *event = &client->events[client->n_events++];
    event->range = range;
    event->code = code;
    snprintf(event->text, sizeof event->text, "%s", text ? text : "");
}

/* Called within rd.poll, so by the thread that uses the client. */
static void on_error(rd_kafka_t *rk, int code, const char *reason, void *opaque) {
    (void)rk;
    event_add(opaque, NO_RANGE, code, reason);
}

/* Called by librdkafka's threads. */
static void on_arrival(rd_kafka_t *rk, void *opaque) {
    (void)rk;
    Client *client = opaque;
    pthread_mutex_lock(&client->lock);
    client->has_arrived = 1;
    pthread_cond_signal(&client->arrived);
    pthread_mutex_unlock(&client->lock);
}

#ifdef __APPLE__
/* macOS has no clock for conditions that cannot be set back, but waits for a duration. */
static int arrival_init(pthread_cond_t *arrived) {
    return pthread_cond_init(arrived, NULL);
}

static int arrival_wait(Client *client, int timeout_ms) {
    struct timespec duration = {timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
    return pthread_cond_timedwait_relative_np(&client->arrived, &client->lock, &duration);
}
#else
static int arrival_init(pthread_cond_t *arrived) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(arrived, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return failed;
}

static int arrival_wait(Client *client, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (timeout_ms % 1000) * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    int failed = 0;
    while (!client->has_arrived && failed == 0)
        failed = pthread_cond_timedwait(&client->arrived, &client->lock, &until);
    return failed;
}
#endif

/* Waits until a queue got something since the last call. Returns whether one did. */
static int wait_for_arrival(Client *client, int timeout_ms) {
    pthread_mutex_lock(&client->lock);
    if (!client->has_arrived)
        arrival_wait(client, timeout_ms);
    int arrived = client->has_arrived;
    client->has_arrived = 0;
    pthread_mutex_unlock(&client->lock);
    return arrived;
}

/* ---- partitions --------------------------------------------------------------------------------------------------- */

static void chunk_drop(Partition *partition) {
    while (partition->chunk_next < partition->chunk_size)
        rd.message_destroy(partition->chunk[partition->chunk_next++]);
}

/* Stops to fetch a partition and forgets it. */
static void partition_free(Client *client, Partition *partition) {
    rd.consume_stop(client->topics[partition->topic].rkt, partition->partition);
    chunk_drop(partition);
    rd.queue_destroy(partition->queue);
    for (int i = 0; i < client->n_partitions; i++)
        if (client->partitions[i] == partition)
            client->partitions[i] = client->partitions[--client->n_partitions];
    free(partition);
}

/* Begins to fetch a partition. Returns 0 with it in `out`, or an error as client_start does. */
static int partition_new(Client *client, int topic, int32_t number, int64_t next_offset, Partition **out) {
    Partition **partitions = realloc(client->partitions, (size_t)(client->n_partitions + 1) * sizeof *partitions);
    if (partitions == NULL)
        return NO_MEMORY;
    client->partitions = partitions;
    Partition *partition = malloc(sizeof *partition);
    if (partition == NULL)
        return NO_MEMORY;
    partition->topic = topic;
    partition->partition = number;
    partition->next_offset = next_offset;
    partition->chunk_next = partition->chunk_size = 0;
    partition->queue = rd.queue_new(client->rk);
    rd.queue_cb_event_enable(partition->queue, on_arrival, client);
    if (rd.consume_start_queue(client->topics[topic].rkt, number, next_offset, partition->queue) == -1) {
        int failed = rd.last_error();
        rd.queue_destroy(partition->queue);
        free(partition);
        return failed ? failed : RD_ERR_FAIL;
    }
    partitions[client->n_partitions++] = partition;
    *out = partition;
    return 0;
}

static Partition *partition_find(const Client *client, int topic, int32_t number) {
    for (int i = 0; i < client->n_partitions; i++)
        if (client->partitions[i]->topic == topic && client->partitions[i]->partition == number)
            return client->partitions[i];
    return NULL;
}

/* Whether what is at hand of a partition leads to an offset soon. */
static int leads_to(const Partition *partition, int64_t offset) {
    return partition->next_offset <= offset && (uint64_t)offset - (uint64_t)partition->next_offset <= MAX_SKIPPED;
}

/* The index of a topic, known from an earlier reading or new; -1 without memory or when librdkafka rejects the name. */
static int topic_index(Client *client, const char *name) {
    for (int i = 0; i < client->n_topics; i++)
        if (strcmp(client->topics[i].name, name) == 0)
            return i;
    Topic *topics = realloc(client->topics, (size_t)(client->n_topics + 1) * sizeof *topics);
    if (topics == NULL)
        return -1;
    client->topics = topics;
    Topic topic = {.name = strdup(name)};
    if (topic.name == NULL)
        return -1;
    topic.rkt = rd.topic_new(client->rk, name, NULL);
    if (topic.rkt == NULL) {
        free(topic.name);
        return -1;
    }
    topics[client->n_topics] = topic;
    return client->n_topics++;
}

/* ---- the client --------------------------------------------------------------------------------------------------- */

Client *client_new(rd_kafka_conf_t *conf, char *why, size_t why_size) {
    Client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        why[0] = '\0';
        rd.conf_destroy(conf);
        return NULL;
    }
    rd.conf_set_opaque(conf, client);
    rd.conf_set_error_cb(conf, on_error);
    client->rk = rd.new(RD_CONSUMER, conf, why, why_size);
    if (client->rk == NULL) {
        rd.conf_destroy(conf);
        free(client);
        return NULL;
    }
    arrival_init(&client->arrived);
    pthread_mutex_init(&client->lock, NULL);
    return client;
}

static void reading_clear(Client *client) {
    batch_clear(&client->batch);
    free(client->ranges);
    client->ranges = NULL;
    client->n_ranges = client->n_open = client->n_events = client->is_full = client->turn = 0;
}

void client_free(Client *client) {
    reading_clear(client);
    while (client->n_partitions > 0)
        partition_free(client, client->partitions[0]);
    free(client->partitions);
    for (int i = 0; i < client->n_topics; i++) {
        rd.topic_destroy(client->topics[i].rkt);
        free(client->topics[i].name);
    }
    free(client->topics);
    rd.destroy_flags(client->rk, RD_DESTROY_NO_CONSUMER_CLOSE);
    pthread_cond_destroy(&client->arrived);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

/* ---- a reading ---------------------------------------------------------------------------------------------------- */

/* Marks the partitions at hand that the ranges need, and stops the others: their turn may never come. */
static void partitions_sort_out(Client *client) {
    for (int i = 0; i < client->n_partitions; i++)
        client->partitions[i]->in_use = 0;
    for (int i = 0; i < client->n_ranges; i++) {
        Range *range = &client->ranges[i];
        Partition *partition = partition_find(client, range->topic, range->partition);
        if (partition && !range->done && leads_to(partition, range->next_offset)) {
            partition->in_use = 1;
            range->fetched = partition;
        }
    }
    for (int i = client->n_partitions - 1; i >= 0; i--)
        if (!client->partitions[i]->in_use)
            partition_free(client, client->partitions[i]);
}

int client_start(Client *client, const char *const *topics, const Range *ranges, int n_ranges, const Field *fields,
                 int n_fields, int64_t max_rows, size_t max_bytes) {
    reading_clear(client);
    batch_init(&client->batch, fields, n_fields);
    client->max_rows = max_rows;
    client->max_bytes = max_bytes;
    client->ranges = calloc((size_t)n_ranges + 1, sizeof *client->ranges);
    if (client->ranges == NULL)
        return NO_MEMORY;
    client->n_ranges = n_ranges;
    for (int i = 0; i < n_ranges; i++) {
        Range *range = &client->ranges[i];
        *range = ranges[i];
        range->fetched = NULL;
        range->done = range->next_offset >= range->end_offset;
        range->topic = topic_index(client, topics[i]);
        if (range->topic < 0) {
            reading_clear(client);
            return NO_MEMORY;
        }
        client->n_open += !range->done;
    }
    partitions_sort_out(client);
    for (int i = 0; i < n_ranges; i++) {
        Range *range = &client->ranges[i];
        if (range->done || range->fetched)
            continue;
        int failed = partition_new(client, range->topic, range->partition, range->next_offset, &range->fetched);
        if (failed) {
            reading_clear(client);
            return failed;
        }
    }
    return 0;
}

void client_stop(Client *client) {
    for (int i = client->n_partitions - 1; i >= 0; i--) {
        Partition *partition = client->partitions[i];
        if (partition->chunk_next == partition->chunk_size && rd.queue_length(partition->queue) == 0)
            partition_free(client, partition);
    }
    reading_clear(client);
}

static void range_done(Client *client, Range *range) {
    if (!range->done)
        client->n_open--;
    range->done = 1;
}

void client_end(Client *client, int index) {
    Range *range = &client->ranges[index];
    range_done(client, range);
    if (range->fetched)
        partition_free(client, range->fetched);
    range->fetched = NULL;
}

int client_seek(Client *client, int index, int64_t next_offset) {
    Range *range = &client->ranges[index];
    if (range->fetched)
        partition_free(client, range->fetched);
    range->fetched = NULL;
    range->next_offset = next_offset;
    return partition_new(client, range->topic, range->partition, next_offset, &range->fetched);
}

/* ---- filling ------------------------------------------------------------------------------------------------------ */

static void flaws_add(Range *range, int64_t offset, int flaws) {
    for (int i = 0; i < N_FLAWS; i++)
        if (flaws & ~range->flaws & 1 << i)
            range->flaw_offsets[i] = offset;
    range->flaws |= flaws;
}

/* A message takes its range forward, ends it, or is an event. Returns 0, or -1 without memory. */
static int take(Client *client, Range *range, const rd_kafka_message_t *message, const Measured *measured) {
    if (message->err == RD_ERR_PARTITION_EOF) {
        if (message->offset >= range->end_offset)
            range_done(client, range);
        return 0;
    }
    if (message->err) {
        /* The payload of an error is its text. */
        event_add(client, (int)(range - client->ranges), message->err,
                  message->payload ? message->payload : rd.err2str(message->err));
        return 0;
    }
    int failed = 0;
    if (message->offset >= range->next_offset) {
        range->next_offset = message->offset + 1;
        if (message->offset < range->end_offset) {
            failed = batch_append(&client->batch, message, client->topics[range->topic].name, measured);
            flaws_add(range, message->offset, measured->flaws);
        }
    }
    if (range->next_offset >= range->end_offset)
        range_done(client, range);
    return failed;
}

int client_full(const Client *client) {
    return client->is_full || client->batch.rows >= client->max_rows || client->batch.bytes >= client->max_bytes;
}

/*
 * Takes what is at hand of a range. The first record past its end stays in the chunk, for the next reading; so does, for the next
 * batch, one that does not fit beside others. Sets `any` if there was something. Returns 0, or -1 without memory.
 */
static int serve(Client *client, Range *range, int *any) {
    Partition *partition = range->fetched;
    while (!range->done && !client->n_events && !client_full(client)) {
        if (partition->chunk_next == partition->chunk_size) {
            ssize_t size = rd.consume_batch_queue(partition->queue, 0, partition->chunk, CHUNK);
            partition->chunk_next = 0;
            partition->chunk_size = size > 0 ? (int)size : 0;
            if (size <= 0)
                break;
        }
        *any = 1;
        rd_kafka_message_t *message = partition->chunk[partition->chunk_next];
        if (!message->err && message->offset >= range->end_offset) {
            range_done(client, range);
            break;
        }
        Measured measured = {0};
        if (!message->err && message->offset >= range->next_offset) {
            measured = batch_measure(&client->batch, message);
            if (client->batch.rows > 0 && measured.bytes > client->max_bytes - client->batch.bytes) {
                client->is_full = 1;
                break;
            }
        }
        partition->chunk_next++;
        if (!message->err && message->offset >= 0)
            partition->next_offset = message->offset + 1;
        int failed = take(client, range, message, &measured);
        rd.message_destroy(message);
        if (failed)
            return -1;
    }
    return 0;
}

int client_fill(Client *client, int timeout_ms) {
    while (client->n_open > 0 && !client->n_events && !client_full(client)) {
        int any = 0;
        for (int i = 0; i < client->n_ranges && !client->n_events && !client_full(client); i++) {
            Range *range = &client->ranges[client->turn];
            /* What could not be begun again elsewhere has no partition. */
            if (!range->done && range->fetched && serve(client, range, &any))
                return -1;
            if (!client_full(client))
                client->turn = (client->turn + 1) % client->n_ranges;
        }
        if (any)
            continue;
        /* What librdkafka has to say of the client comes this way. */
        rd.poll(client->rk, 0);
        if (!client->n_events && !wait_for_arrival(client, timeout_ms)) {
            rd.poll(client->rk, 0);
            break;
        }
    }
    return 0;
}
