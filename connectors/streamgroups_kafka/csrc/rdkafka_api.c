/* Loads librdkafka; see rdkafka_api.h. */
#include "rdkafka_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* 2.0.0 to below 3.0.0, as librdkafka writes versions: 0xMMmmrrxx. */
#define OLDEST_VERSION 0x02000000
#define NEXT_MAJOR 0x03000000

RdKafka rd;

static char loaded_path[4096];

int rdkafka_api_load(const char *path, char *why, size_t why_size) {
    if (loaded_path[0] != '\0') {
        if (strcmp(loaded_path, path) == 0)
            return 0;
        snprintf(why, why_size, "librdkafka is loaded already, from %s", loaded_path);
        return -1;
    }
    if (strlen(path) >= sizeof loaded_path) {
        snprintf(why, why_size, "the path of librdkafka is too long");
        return -1;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, why_size, "%s", dlerror());
        return -1;
    }
    RdKafka found;
#define X(name, result, arguments)                                                                                     \
    *(void **)(&found.name) = dlsym(library, "rd_kafka_" #name);                                                       \
    if (found.name == NULL) {                                                                                          \
        snprintf(why, why_size, "it has no function rd_kafka_" #name);                                                 \
        dlclose(library);                                                                                              \
        return -1;                                                                                                     \
    }
    RDKAFKA_FUNCTIONS(X)
#undef X
    int version = found.version();
    if (version < OLDEST_VERSION || version >= NEXT_MAJOR) {
        snprintf(why, why_size, "it is version %s; 2.x is needed", found.version_str());
        dlclose(library);
        return -1;
    }
    rd = found;
    strcpy(loaded_path, path);
    return 0;
}
