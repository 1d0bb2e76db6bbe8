/* See utf8.h. */
#include "utf8.h"

/* The length of the well-formed sequence at `p`; -1 if the bytes are not well-formed. */
static int sequence(const unsigned char *p, size_t left) {
    unsigned char lead = p[0], low = 0x80, high = 0xBF;
    int length;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        if (lead == 0xE0)
            low = 0xA0; /* shorter forms exist */
        else if (lead == 0xED)
            high = 0x9F; /* surrogates */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        if (lead == 0xF0)
            low = 0x90;
        else if (lead == 0xF4)
            high = 0x8F; /* past U+10FFFF */
    } else {
        return -1;
    }
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= left || p[i] < low || p[i] > high)
            return -1;
        low = 0x80, high = 0xBF;
    }
    return length;
}

int utf8_valid(const unsigned char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        int length = sequence(bytes + at, size - at);
        if (length < 0)
            return 0;
        at += (size_t)length;
    }
    return 1;
}
