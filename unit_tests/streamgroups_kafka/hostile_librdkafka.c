/*
 * A librdkafka that hands the native reader whatever a broken or hostile one could: random errors, offsets, timestamps, headers, sizes.
 *
 * Built and loaded by hostile_library.py. SEED is an environment variable, so that a failure can be seen again.
 */
#include "rdkafka_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_PER_QUEUE 40
#define EXPORTED __attribute__((visibility("default")))

struct rd_kafka_headers_s {
    int count;
};
struct rd_kafka_queue_s {
    int64_t next;
};
struct rd_kafka_s {
    int unused;
};
struct rd_kafka_topic_s {
    int unused;
};

static uint64_t state;
static rd_kafka_t client;
static rd_kafka_topic_t topic;
static char bytes[70000];
static const char *NAMES[] = {"", "a", "\xff", "\xc3\xa9", "\xed\xa0\x80", "name"};

static uint32_t any(uint32_t below) {
    if (state == 0) {
        const char *seed = getenv("SEED");
        state = seed ? strtoull(seed, NULL, 10) * 2654435761u + 88172645463325252u : 88172645463325252u;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

static int64_t any_number(void) {
    static const int64_t edges[] = {0, -1, 1, INT64_MAX, INT64_MIN, INT64_MAX / 1000, INT64_MAX / 1000 + 1, INT32_MAX, -1001};
    return any(3) ? (int64_t)any(1000) : edges[any(sizeof edges / sizeof *edges)];
}

EXPORTED int rd_kafka_version(void) { return 0x02100000; }
EXPORTED const char *rd_kafka_version_str(void) { return "2.16.0"; }
EXPORTED const char *rd_kafka_err2str(int code) { (void)code; return "hostile"; }
EXPORTED int rd_kafka_last_error(void) { return any(2) ? 0 : -200; }
EXPORTED rd_kafka_conf_t *rd_kafka_conf_new(void) { return (rd_kafka_conf_t *)&client; }
EXPORTED void rd_kafka_conf_destroy(rd_kafka_conf_t *conf) { (void)conf; }
EXPORTED int rd_kafka_conf_set(rd_kafka_conf_t *c, const char *n, const char *v, char *why, size_t size) {
    (void)c, (void)n, (void)v, (void)why, (void)size;
    return RD_CONF_OK;
}
EXPORTED void rd_kafka_conf_set_opaque(rd_kafka_conf_t *conf, void *opaque) { (void)conf, (void)opaque; }
EXPORTED void rd_kafka_conf_set_error_cb(rd_kafka_conf_t *conf, void (*cb)(rd_kafka_t *, int, const char *, void *)) {
    (void)conf, (void)cb;
}
EXPORTED rd_kafka_t *rd_kafka_new(int kind, rd_kafka_conf_t *conf, char *why, size_t size) {
    (void)kind, (void)conf, (void)why, (void)size;
    return &client;
}
EXPORTED void rd_kafka_destroy_flags(rd_kafka_t *rk, int flags) { (void)rk, (void)flags; }
EXPORTED int rd_kafka_poll(rd_kafka_t *rk, int timeout_ms) { (void)rk, (void)timeout_ms; return 0; }
EXPORTED rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *rk, const char *name, rd_kafka_topic_conf_t *conf) {
    (void)rk, (void)name, (void)conf;
    return &topic;
}
EXPORTED void rd_kafka_topic_destroy(rd_kafka_topic_t *rkt) { (void)rkt; }
EXPORTED const char *rd_kafka_topic_name(const rd_kafka_topic_t *rkt) { (void)rkt; return "flights"; }
EXPORTED rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *rk) { (void)rk; return calloc(1, sizeof(rd_kafka_queue_t)); }
EXPORTED void rd_kafka_queue_destroy(rd_kafka_queue_t *queue) { free(queue); }
EXPORTED size_t rd_kafka_queue_length(rd_kafka_queue_t *queue) { (void)queue; return any(2); }
EXPORTED void rd_kafka_queue_cb_event_enable(rd_kafka_queue_t *queue, void (*cb)(rd_kafka_t *, void *), void *opaque) {
    (void)queue, (void)cb, (void)opaque;
}
EXPORTED int rd_kafka_consume_start_queue(rd_kafka_topic_t *rkt, int32_t p, int64_t offset, rd_kafka_queue_t *queue) {
    (void)rkt, (void)p;
    queue->next = offset;
    return any(10) ? 0 : -1;
}
EXPORTED int rd_kafka_consume_stop(rd_kafka_topic_t *rkt, int32_t p) { (void)rkt, (void)p; return 0; }

EXPORTED ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **out, size_t most) {
    (void)timeout_ms;
    if (!any(8))
        return -1;
    size_t size = any(CHUNK_PER_QUEUE) < most ? any(CHUNK_PER_QUEUE) : most;
    for (size_t i = 0; i < size; i++) {
        rd_kafka_message_t *message = out[i] = calloc(1, sizeof *message);
        message->rkt = &topic;
        message->offset = any(12) ? queue->next++ : any_number();
        message->err = any(60) ? 0 : any(2) ? RD_ERR_PARTITION_EOF : -195;
        if (any(5) && !message->err)
            message->payload = bytes, message->len = any(4) ? any(100) : any(sizeof bytes);
        if (any(3))
            message->key = bytes, message->key_len = any(30);
    }
    return (ssize_t)size;
}

EXPORTED void rd_kafka_message_destroy(rd_kafka_message_t *message) {
    free(message->private_);
    free(message);
}
EXPORTED int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *message, int *type) {
    *type = (int)(message->offset & 1);
    /* The same each time for one message. */
    return message->offset % 7 ? message->offset : message->offset % 2 ? INT64_MIN : INT64_MAX;
}
EXPORTED int rd_kafka_message_headers(const rd_kafka_message_t *message, rd_kafka_headers_t **out) {
    static rd_kafka_headers_t headers;
    headers.count = (int)((uint64_t)message->offset % 5);
    *out = &headers;
    return headers.count ? RD_ERR_NO_ERROR : -156;
}
EXPORTED int rd_kafka_header_get_all(const rd_kafka_headers_t *headers, size_t i, const char **name, const void **value,
                                     size_t *size) {
    if (i >= (size_t)headers->count)
        return -156;
    /* Bad names come with four headers only. */
    *name = NAMES[headers->count == 4 ? i + 2 : i % 2];
    *value = i % 3 ? bytes : NULL;
    *size = i * 3;
    return RD_ERR_NO_ERROR;
}
EXPORTED int rd_kafka_query_watermark_offsets(rd_kafka_t *rk, const char *name, int32_t p, int64_t *low, int64_t *high, int ms) {
    (void)rk, (void)name, (void)p, (void)ms;
    *low = any_number(), *high = any_number();
    return any(5) ? 0 : -185;
}
EXPORTED int rd_kafka_oauthbearer_set_token(rd_kafka_t *rk, const char *token, int64_t expires_at_ms, const char *principal,
                                            const char **extensions, size_t n, char *why, size_t size) {
    (void)rk, (void)token, (void)expires_at_ms, (void)principal, (void)extensions, (void)n;
    snprintf(why, size, "hostile");
    return any(2) ? 0 : -1;
}
