/*
 * Header names as text: Arrow's strings are UTF-8, Kafka's header names are bytes that should be.
 *
 * Used by arrow_batch.c. Source: The Unicode Standard, 3.9 (well-formed sequences).
 */
#ifndef STREAMGROUPS_UTF8_H
#define STREAMGROUPS_UTF8_H

#include <stddef.h>

/* Whether the bytes are well-formed UTF-8. */
int utf8_valid(const unsigned char *bytes, size_t size);

#endif
