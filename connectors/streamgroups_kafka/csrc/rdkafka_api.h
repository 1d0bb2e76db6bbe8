/*
 * The part of librdkafka's public C interface that the native reader uses, as a table of functions filled at run time.
 *
 * Used by client.c and module.c. The library is the one that confluent-kafka's wheel carries (or a system one), so nothing of
 * it is needed at build time: neither its headers nor its name. The types below are part of librdkafka's stable interface,
 * unchanged since version 1.0; `rdkafka_api_load` rejects versions it was not written for.
 */
#ifndef STREAMGROUPS_RDKAFKA_API_H
#define STREAMGROUPS_RDKAFKA_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;

enum { RD_CONSUMER = 1 };
enum { RD_CONF_OK = 0 };
enum { RD_ERR_NO_ERROR = 0, RD_ERR_NOENT = -156, RD_ERR_INVALID_ARG = -186, RD_ERR_PARTITION_EOF = -191, RD_ERR_FAIL = -196 };
enum { RD_DESTROY_NO_CONSUMER_CLOSE = 0x8 };

/* Name, result, arguments: of every function that is looked up. */
#define RDKAFKA_FUNCTIONS(X)                                                                                           \
    X(version, int, (void))                                                                                            \
    X(version_str, const char *, (void))                                                                               \
    X(err2str, const char *, (int))                                                                                    \
    X(last_error, int, (void))                                                                                         \
    X(conf_new, rd_kafka_conf_t *, (void))                                                                             \
    X(conf_destroy, void, (rd_kafka_conf_t *))                                                                         \
    X(conf_set, int, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                                  \
    X(conf_set_opaque, void, (rd_kafka_conf_t *, void *))                                                              \
    X(conf_set_error_cb, void, (rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, const char *, void *)))                 \
    X(new, rd_kafka_t *, (int, rd_kafka_conf_t *, char *, size_t))                                                     \
    X(destroy_flags, void, (rd_kafka_t *, int))                                                                        \
    X(poll, int, (rd_kafka_t *, int))                                                                                  \
    X(topic_new, rd_kafka_topic_t *, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                            \
    X(topic_destroy, void, (rd_kafka_topic_t *))                                                                       \
    X(topic_name, const char *, (const rd_kafka_topic_t *))                                                            \
    X(queue_new, rd_kafka_queue_t *, (rd_kafka_t *))                                                                   \
    X(queue_destroy, void, (rd_kafka_queue_t *))                                                                       \
    X(queue_length, size_t, (rd_kafka_queue_t *))                                                                      \
    X(queue_cb_event_enable, void, (rd_kafka_queue_t *, void (*)(rd_kafka_t *, void *), void *))                       \
    X(consume_start_queue, int, (rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *))                            \
    X(consume_stop, int, (rd_kafka_topic_t *, int32_t))                                                                \
    X(consume_batch_queue, ssize_t, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                          \
    X(message_destroy, void, (rd_kafka_message_t *))                                                                   \
    X(message_timestamp, int64_t, (const rd_kafka_message_t *, int *))                                                 \
    X(message_headers, int, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                       \
    X(header_get_all, int, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))               \
    X(query_watermark_offsets, int, (rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *, int))                  \
    X(oauthbearer_set_token, int,                                                                                      \
      (rd_kafka_t *, const char *, int64_t, const char *, const char **, size_t, char *, size_t))

typedef struct {
#define X(name, result, arguments) result(*name) arguments;
    RDKAFKA_FUNCTIONS(X)
#undef X
} RdKafka;

/* librdkafka, once it is loaded. */
extern RdKafka rd;

/*
 * Opens the shared library at `path` and fills `rd`. Returns 0, or -1 with the reason in `why`. Loading a second time is
 * rejected unless the path is the same: a process has one librdkafka.
 */
int rdkafka_api_load(const char *path, char *why, size_t why_size);

#endif
