/*
 * Header names as text: Arrow's strings are UTF-8, Kafka's header names are bytes that should be.
 *
 * Used by arrow_batch.c. Source: The Unicode Standard, 3.9 (well-formed sequences; replacing maximal subparts), which is what
 * Java does when Spark's source decodes the same names.
 */
#ifndef STREAMGROUPS_UTF8_H
#define STREAMGROUPS_UTF8_H

#include <stddef.h>

/* How many bytes a name can grow by when it is repaired: each bad byte may become the three bytes of U+FFFD. */
#define UTF8_MOST_GROWTH 3

/* Whether the bytes are well-formed UTF-8. */
int utf8_valid(const unsigned char *bytes, size_t size);

/* Copies the bytes with U+FFFD for what is not well-formed; `out` has room for UTF8_MOST_GROWTH * size. Returns its size. */
size_t utf8_repair(const unsigned char *bytes, size_t size, unsigned char *out);

#endif
