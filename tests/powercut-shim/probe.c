/*
 * A program whose fate in a power cut is known line by line: the shim's own test runs it, cuts the
 * power, and looks at what is left in the directory.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int must(int result) {
    if (result < 0) {
        perror("probe");
        exit(1);
    }
    return result;
}

static int create(const char *name) { return must(open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644)); }
static void put(int fd, const char *text) { must((int)write(fd, text, strlen(text))); }

static void make_synced(const char *name, const char *text) {
    int fd = create(name);
    put(fd, text);
    must(fsync(fd));
    must(close(fd));
}

static void sync_directory(void) {
    int dir = must(open(".", O_RDONLY | O_DIRECTORY));
    must(fsync(dir));
    must(close(dir));
}

int main(int argc, char **argv) {
    must(argc == 2 ? chdir(argv[1]) : -1);

    /* What is durable before the interesting part begins. */
    make_synced("CURRENT", "old");
    make_synced("unlinked-durably", "gone");
    must(unlink("unlinked-durably"));
    make_synced("renamed.tmp", "new name");
    must(rename("renamed.tmp", "renamed-durably"));
    int empty = create("only-its-name-is-synced");
    put(empty, "lost");
    make_synced("first-name", "two names");
    must(link("first-name", "linked-durably"));
    must(mkdir("removed-durably", 0755));
    make_synced("removed-durably/inside", "gone");
    must(unlink("removed-durably/inside"));
    must(rmdir("removed-durably"));
    sync_directory();

    /* Appends after the last sync are lost, with fdatasync as with fsync. */
    int log = create("log");
    put(log, "synced");
    must(fdatasync(log));
    put(log, " and more");

    /* A file cut back and written again is durable only up to the cut. */
    make_synced("cut-back", "0123456789");
    int back = must(open("cut-back", O_WRONLY));
    must(ftruncate(back, 4));
    must((int)lseek(back, 0, SEEK_END));
    put(back, "abcdef");

    /* Written over in place: what was there before comes back, unless it was synced since. */
    make_synced("overwritten", "first second");
    int over = must(open("overwritten", O_WRONLY));
    must((int)pwrite(over, "FIRST", 5, 0));
    must(fdatasync(over));
    must((int)pwrite(over, "third!", 6, 6));
    must((int)pwrite(over, "FOURTH and longer", 17, 6));

    /* Never synced, neither the file nor its directory. */
    put(create("never-synced"), "lost");

    /* Stdio opens files behind the shim's back. */
    FILE *stdio = fopen("stdio", "w");
    fputs("lost", stdio);
    fflush(stdio);

    /* Without a sync of the directory a rename and an unlink are undone. */
    make_synced("CURRENT.tmp", "new");
    must(rename("CURRENT.tmp", "CURRENT"));
    make_synced("unlinked", "back again");
    must(unlink("unlinked"));

    /* The same goes for a further name, and for a directory with what was in it. */
    must(link("first-name", "linked"));
    must(mkdir("removed", 0755));
    make_synced("removed/inside-removed", "back with its directory");
    must(unlink("removed/inside-removed"));
    must(rmdir("removed"));
    return 0;
}
