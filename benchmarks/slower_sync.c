/* Has each fsync and fdatasync take longer, as on a slower disk: what of a durable decision is the disk's, what ours?
 *
 *   cc -shared -fPIC -O2 -o build/slower_sync.so benchmarks/slower_sync.c -ldl
 *   SLOWER_US=1000 LD_PRELOAD=$PWD/build/slower_sync.so python -m benchmarks --only durable --scale 0.02
 *
 * Linux alone. It sleeps once the disk has answered, so nothing is told earlier than it is kept.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slower(const char *name, int file)
{
    const char *wanted = getenv("SLOWER_US");
    int (*usual)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int found = usual(file);

    if (wanted != NULL)
        usleep((useconds_t)atol(wanted));
    return found;
}

int fsync(int file) { return slower("fsync", file); }
int fdatasync(int file) { return slower("fdatasync", file); }
