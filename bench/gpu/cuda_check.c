/* What a program in a container sees of the cards: one line of JSON. `cuda_check MIB SECONDS` then holds memory
 * on the first card and works there. The driver is loaded as frameworks do it, by the name of its library.
 * Ends with 3 where there is no driver or no card. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*function)();

static void *driver;

static function from_driver(const char *name) {
    function found = (function)dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(4);
    }
    return found;
}

static void check(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        exit(5);
    }
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    int code = -1, count = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        fprintf(stderr, "%s\n", dlerror());
    else if ((code = from_driver("cuInit")(0)) == 0)
        check(from_driver("cuDeviceGetCount")(&count), "cuDeviceGetCount");
    printf("{\"init\": %d, \"cards\": [", code);
    for (int at = 0; at < count; at++) {
        int device;
        unsigned char id[16];
        check(from_driver("cuDeviceGet")(&device, at), "cuDeviceGet");
        check(from_driver("cuDeviceGetUuid_v2")(id, device), "cuDeviceGetUuid");
        printf("%s\"GPU-", at ? ", " : "");
        for (int byte = 0; byte < 16; byte++)
            printf("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "", id[byte]);
        printf("\"");
    }
    printf("], \"cuda_visible_devices\": \"%s\", \"dibs_gpus\": \"%s\"}\n", variable("CUDA_VISIBLE_DEVICES"),
           variable("DIBS_GPUS"));
    fflush(stdout);
    if (count == 0)
        return 3;
    if (argc < 3)
        return 0;

    size_t size = (size_t)atol(argv[1]) << 20;
    double until = now() + atof(argv[2]);
    void *context;
    unsigned long long memory;
    check(from_driver("cuCtxCreate_v2")(&context, 0, 0), "cuCtxCreate");
    check(from_driver("cuMemAlloc_v2")(&memory, size), "cuMemAlloc");
    puts("holds");
    fflush(stdout);
    while (now() < until) {
        for (int times = 0; times < 50; times++)
            check(from_driver("cuMemsetD8_v2")(memory, times, size), "cuMemset");
        check(from_driver("cuCtxSynchronize")(), "cuCtxSynchronize");
    }
    puts("done");
    return 0;
}
