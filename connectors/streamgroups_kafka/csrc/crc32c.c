/* See crc32c.h. */
#include "crc32c.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC32C_X86
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#define CRC32C_ARM
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

#define POLYNOMIAL 0x82F63B78u /* bits reversed */
#define AT_ONCE 8

/* table[k][b]: what byte b does to the checksum when k more bytes follow it. */
static uint32_t table[AT_ONCE][256];

typedef uint32_t (*Update)(uint32_t state, const uint8_t *p, size_t size);

static uint32_t update_by_table(uint32_t state, const uint8_t *p, size_t size) {
    for (; size >= AT_ONCE; size -= AT_ONCE, p += AT_ONCE) {
        state ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        state = table[7][state & 0xFF] ^ table[6][state >> 8 & 0xFF] ^ table[5][state >> 16 & 0xFF] ^
                table[4][state >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; size > 0; size--, p++)
        state = table[0][(state ^ *p) & 0xFF] ^ state >> 8;
    return state;
}

#if defined(CRC32C_X86)

__attribute__((target("sse4.2"))) static uint32_t update_in_hardware(uint32_t state, const uint8_t *p, size_t size) {
    uint64_t wide = state, word;
    for (; size >= sizeof word; size -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; size > 0; size--, p++)
        state = _mm_crc32_u8(state, *p);
    return state;
}

static int has_instruction(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

#elif defined(CRC32C_ARM)

/* Written as assembly: compilers offer their functions for it only where all code may use the extension. */
static uint32_t update_in_hardware(uint32_t state, const uint8_t *p, size_t size) {
    uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    }
    for (; size > 0; size--, p++)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)*p));
    return state;
}

static int has_instruction(void) {
#if defined(__APPLE__)
    return 1; /* every 64-bit processor of Apple's has it */
#else
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

#endif

static Update update = update_by_table;

void crc32c_init(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t state = b;
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
        table[0][b] = state;
    }
    for (int k = 1; k < AT_ONCE; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[0][table[k - 1][b] & 0xFF] ^ table[k - 1][b] >> 8;
#if defined(CRC32C_X86) || defined(CRC32C_ARM)
    if (has_instruction())
        update = update_in_hardware;
#endif
}

int crc32c_in_hardware(void) {
    return update != update_by_table;
}

uint32_t crc32c(const void *bytes, size_t size) {
    return ~update(~0u, bytes, size);
}

uint32_t crc32c_by_table(const void *bytes, size_t size) {
    return ~update_by_table(~0u, bytes, size);
}
