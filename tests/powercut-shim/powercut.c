/*
 * What of a data directory would survive a power cut?
 *
 * This library is loaded into a server with LD_PRELOAD. It stands between the server and the kernel
 * for the few calls that decide what reaches the disk, lets each of them happen, and writes down what
 * it promised in a journal outside the data directory. The server is then killed, and the test
 * (tests/src/powercut.rs) reads the journal and takes back everything that was never promised.
 *
 *     server ── open, rename, link, unlink, … ──▶ it happens, and might be lost: written down
 *            ── fsync, fdatasync ───────────────▶ it happens, and is promised:   written down
 *            ── pwrite over existing bytes ─────▶ it happens, and might be lost: written down
 *            ── write, sync_file_range, msync ──▶ not looked at: no promise
 *
 * A promise is written down before the caller learns of it. So a reply that a server sends after its
 * fsync is never ahead of the journal, wherever the kill falls.
 *
 * What can be taken back needs to be kept: a file that is unlinked or displaced by a rename first
 * gets a second name in an attic directory. It also keeps its inode from being reused. Bytes that are
 * overwritten are copied to a file there.
 *
 * One line per event, the fields separated by tabs:
 *
 *     create    time  file  path
 *     truncate  time  file  size  path
 *     overwrite time  file  offset  length  kept  path     kept: where in the attic's file the old bytes are
 *     sync      time  file  size  path
 *     syncdir   time  path
 *     rename    time  attic  from  to       attic: where the displaced file lies, "-" if none
 *     unlink    time  attic  path
 *     link      time  file  path            a further name of a file
 *     rmdir     time  path
 *
 * `file` is inode:birth, which no later file shares. `time` is monotonic. A change carries the time at
 * which it was done and a sync the time at which it began, as does the size it covers: a change or a
 * write that overlaps a sync is not promised by it.
 *
 * The calls below go straight to the kernel, not through dlsym: they may run before any constructor,
 * from an allocator that is still setting itself up. For the same reason nothing here allocates.
 *
 * Not seen: files that stdio opens from inside libc (the test keeps those only once synced), new
 * directories (taken as durable), and bytes overwritten by other calls than pwrite (neither log files nor
 * sorted tables do that).
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATH_ROOM (2 * PATH_MAX)

static int journal = -1;
static int overwritten = -1;
static atomic_llong overwritten_length;
static char root[PATH_MAX];
static char attic[PATH_MAX];
static size_t root_length;

/* Copied, for a program may overwrite its environment to show a title in its place. */
static int setting(const char *name, char *value) {
    const char *given = getenv(name);
    return given && snprintf(value, PATH_MAX, "%s", given) < PATH_MAX;
}

__attribute__((constructor)) static void start(void) {
    char path[PATH_MAX];
    if (!setting("POWERCUT_JOURNAL", path) || !setting("POWERCUT_ROOT", root) || !setting("POWERCUT_ATTIC", attic))
        return;
    root_length = strlen(root);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (journal < 0) abort();
    snprintf(path, sizeof path, "%.*s/overwritten", PATH_MAX - 20, attic);
    overwritten = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (overwritten < 0) abort();
    atomic_store(&overwritten_length, syscall(SYS_lseek, overwritten, 0, SEEK_END));
}

/* One write per event: O_APPEND keeps the lines of all threads and forked children whole. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    char line[3 * PATH_ROOM];
    va_list fields;
    va_start(fields, format);
    int length = vsnprintf(line, sizeof line, format, fields);
    va_end(fields);
    /* A promise that cannot be written down would turn into a false alarm: better to stop. */
    if (length >= (int)sizeof line || syscall(SYS_write, journal, line, (size_t)length) != length) abort();
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* ---- which file, and is it one of ours ---- */

static int inside(const char *path) {
    return journal >= 0 && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static int path_of_fd(int fd, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* Puts `name`, seen from `dirfd`, in full into `path`. */
static int path_of_name(int dirfd, const char *name, char *path) {
    if (name[0] == '/') return snprintf(path, PATH_ROOM, "%s", name) < PATH_ROOM;
    char dir[PATH_MAX];
    if (dirfd == AT_FDCWD ? syscall(SYS_getcwd, dir, sizeof dir) < 0 : !path_of_fd(dirfd, dir)) return 0;
    return snprintf(path, PATH_ROOM, "%s/%s", dir, name) < PATH_ROOM;
}

struct file {
    char id[48];
    long long size;
    int is_dir;
};

static int identify(int fd, struct file *file) {
    struct statx info;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &info)) return 0;
    snprintf(file->id, sizeof file->id, "%llu:%lld", (unsigned long long)info.stx_ino,
             info.stx_btime.tv_sec * 1000000000LL + info.stx_btime.tv_nsec);
    file->size = (long long)info.stx_size;
    file->is_dir = S_ISDIR(info.stx_mode);
    return 1;
}

/* Gives the file a second name before its own goes. Leaves "-" if there is no such file. */
static void keep(const char *path, char *kept) {
    static atomic_uint count;
    snprintf(kept, PATH_ROOM, "%s/%d-%u", attic, (int)getpid(), atomic_fetch_add(&count, 1));
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0)) strcpy(kept, "-");
}

static void discard(const char *kept) {
    if (kept[0] != '-') syscall(SYS_unlinkat, AT_FDCWD, kept, 0);
}

/* ---- promises ---- */

static int sync_with(long call, int fd) {
    char path[PATH_MAX];
    struct file file;
    long long began = now();
    int ours = journal >= 0 && path_of_fd(fd, path) && inside(path) && identify(fd, &file);
    int result = (int)syscall(call, fd);
    if (result == 0 && ours) {
        if (file.is_dir) note("syncdir\t%lld\t%s\n", began, path);
        else note("sync\t%lld\t%s\t%lld\t%s\n", began, file.id, file.size, path);
    }
    return result;
}

int fsync(int fd) { return sync_with(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_with(SYS_fdatasync, fd); }

/* ---- changes to what a file holds ---- */

static void note_truncated(int fd, long long size) {
    char path[PATH_MAX];
    struct file file;
    int saved = errno;
    if (journal >= 0 && path_of_fd(fd, path) && inside(path) && identify(fd, &file))
        note("truncate\t%lld\t%s\t%lld\t%s\n", now(), file.id, size, path);
    errno = saved;
}

int ftruncate(int fd, off_t size) {
    int result = (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0) note_truncated(fd, (long long)size);
    return result;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, (off_t)size); }

int truncate(const char *name, off_t size) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return fd;
    int result = ftruncate(fd, size);
    int saved = errno;
    syscall(SYS_close, fd);
    errno = saved;
    return result;
}

int truncate64(const char *name, off64_t size) { return truncate(name, (off_t)size); }

/* Copies bytes of a file that may be open for writing only, and returns where they are kept. */
static long long keep_bytes(int fd, long long at, long long length) {
    char link[32], block[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    long long kept = atomic_fetch_add(&overwritten_length, length);
    for (long long done = 0; done < length;) {
        size_t room = length - done < (long long)sizeof block ? (size_t)(length - done) : sizeof block;
        long count = syscall(SYS_pread64, reader, block, room, at + done);
        if (count <= 0 || syscall(SYS_pwrite64, overwritten, block, count, kept + done) != count) abort();
        done += count;
    }
    syscall(SYS_close, reader);
    return kept;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    char path[PATH_MAX];
    struct file file;
    int ours = journal >= 0 && path_of_fd(fd, path) && inside(path) && identify(fd, &file) && at < file.size;
    long long kept = 0, covered = 0;
    if (ours) {
        covered = file.size - at < (long long)length ? file.size - at : (long long)length;
        kept = keep_bytes(fd, at, covered);
    }
    ssize_t result = syscall(SYS_pwrite64, fd, bytes, length, at);
    int saved = errno;
    if (ours) note("overwrite\t%lld\t%s\t%lld\t%lld\t%lld\t%s\n", now(), file.id, (long long)at, covered, kept, path);
    errno = saved;
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) { return pwrite(fd, bytes, length, (off_t)at); }

/* ---- changes to which names there are ---- */

static int open_with(int dirfd, const char *name, int flags, mode_t mode) {
    int may_create = (flags & O_CREAT) && journal >= 0;
    int existed = may_create && syscall(SYS_faccessat, dirfd, name, F_OK) == 0;
    int fd = (int)syscall(SYS_openat, dirfd, name, flags, mode);
    if (fd < 0) return fd;
    char path[PATH_MAX];
    struct file file;
    int saved = errno;
    if (may_create && !existed && path_of_fd(fd, path) && inside(path) && identify(fd, &file))
        note("create\t%lld\t%s\t%s\n", now(), file.id, path);
    else if (flags & O_TRUNC)
        note_truncated(fd, 0);
    errno = saved;
    return fd;
}

/* The mode is there only when a file may come into being. */
#define MODE(flags)                                                    \
    __extension__({                                                    \
        mode_t mode = 0;                                               \
        if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
            va_list rest;                                              \
            va_start(rest, flags);                                     \
            mode = (mode_t)va_arg(rest, unsigned);                     \
            va_end(rest);                                              \
        }                                                              \
        mode;                                                          \
    })

int open(const char *name, int flags, ...) { return open_with(AT_FDCWD, name, flags, MODE(flags)); }
int open64(const char *name, int flags, ...) { return open_with(AT_FDCWD, name, flags, MODE(flags)); }
int openat(int dir, const char *name, int flags, ...) { return open_with(dir, name, flags, MODE(flags)); }
int openat64(int dir, const char *name, int flags, ...) { return open_with(dir, name, flags, MODE(flags)); }
int creat(const char *name, mode_t mode) { return open_with(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

static int rename_with(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char old[PATH_ROOM], new[PATH_ROOM], kept[PATH_ROOM] = "-";
    int ours = journal >= 0 && path_of_name(from_dir, from, old) && path_of_name(to_dir, to, new) && inside(new);
    if (ours) keep(new, kept);
    int result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    int saved = errno;
    if (result) discard(kept);
    else if (ours) note("rename\t%lld\t%s\t%s\t%s\n", now(), kept, old, new);
    errno = saved;
    return result;
}

int rename(const char *from, const char *to) { return rename_with(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return rename_with(from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return rename_with(from_dir, from, to_dir, to, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    int result = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    int saved = errno;
    char path[PATH_ROOM];
    struct file file;
    if (result == 0 && journal >= 0 && path_of_name(to_dir, to, path) && inside(path)) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && identify(fd, &file)) note("link\t%lld\t%s\t%s\n", now(), file.id, path);
        syscall(SYS_close, fd);
    }
    errno = saved;
    return result;
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int dir, const char *name, int flags) {
    char path[PATH_ROOM], kept[PATH_ROOM] = "-";
    int is_dir = flags & AT_REMOVEDIR;
    int ours = journal >= 0 && path_of_name(dir, name, path) && inside(path);
    if (ours && !is_dir) keep(path, kept);
    int result = (int)syscall(SYS_unlinkat, dir, name, flags);
    int saved = errno;
    if (result) discard(kept);
    else if (ours && is_dir) note("rmdir\t%lld\t%s\n", now(), path);
    else if (ours) note("unlink\t%lld\t%s\t%s\n", now(), kept, path);
    errno = saved;
    return result;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int remove(const char *name) {
    int result = unlinkat(AT_FDCWD, name, 0);
    return result && (errno == EISDIR || errno == EPERM) ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}
