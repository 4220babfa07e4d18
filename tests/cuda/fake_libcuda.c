/* A driver for machines without one: the checkpoint calls of libcuda, with their codes.

   Each call connects to the socket $FAKE_CUDA/PID.sock of a fake program (fake_program.py) and waits for its answer, so
   that the program itself does what the driver does in a real one. A program that is stopped does not answer, and one
   whose caller is killed in the middle goes on alone. -DOLD makes a driver without these calls. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NOT_INITIALIZED 3
#define INVALID_HANDLE 304

/* $FAKE_CUDA, or the folder of this library: a daemon keeps only the variables of dibs. */
static int folder(void) {
  const char *path = getenv("FAKE_CUDA"), *library = getenv("DIBS_CUDA_LIBRARY");
  char beside[4096];
  if (!path && library && strrchr(library, '/') && strlen(library) < sizeof beside) {
    strcpy(beside, library);
    *strrchr(beside, '/') = 0;
    path = beside;
  }
  return path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* The code of cuInit is in the file `init`, where a test wants it to fail. */
int cuInit(unsigned flags) {
  int code = 0, at = folder();
  if (at < 0) return 100;
  int file = openat(at, "init", O_RDONLY | O_CLOEXEC);
  close(at);
  if (file >= 0) {
    char text[16] = "";
    if (read(file, text, sizeof text - 1) > 0) code = atoi(text);
    close(file);
  }
  return code;
}

#ifndef OLD
struct lock_arguments {
  unsigned timeoutMs, reserved0;
  unsigned long long reserved1[7];
};

static int is_there(int pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return 0;
  text[got] = 0;
  char *end = strrchr(text, ')');
  return end && end[2] != 'Z' && end[2] != 'X';
}

static int ask(int pid, const char *word, unsigned number, int *state) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  char line[64];
  int at = folder();
  if (at < 0) return NOT_INITIALIZED;
  /* Through /proc: the folder's own path may be longer than a socket's name. */
  snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/%d.sock", at, pid);
  int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int refused = connect(channel, (struct sockaddr *)&name, sizeof name) ? errno : 0;
  close(at);
  if (refused) {
    close(channel);
    return refused == ENOENT && is_there(pid) ? NOT_INITIALIZED : INVALID_HANDLE;
  }
  int length = snprintf(line, sizeof line, "%s %u\n", word, number);
  ssize_t got = 0;
  if (send(channel, line, length, MSG_NOSIGNAL) == length) got = recv(channel, line, sizeof line - 1, 0);
  close(channel);
  if (got <= 0) return INVALID_HANDLE; /* it was killed */
  line[got] = 0;
  int code = INVALID_HANDLE, now = -1;
  sscanf(line, "%d %d", &code, &now);
  if (state && !code) *state = now;
  return code;
}

int cuCheckpointProcessGetState(int pid, int *state) { return ask(pid, "state", 0, state); }
int cuCheckpointProcessLock(int pid, struct lock_arguments *arguments) {
  return ask(pid, "lock", arguments ? arguments->timeoutMs : 0, NULL);
}
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return ask(pid, "checkpoint", 0, NULL); }
int cuCheckpointProcessRestore(int pid, void *arguments) { return ask(pid, "restore", 0, NULL); }
int cuCheckpointProcessUnlock(int pid, void *arguments) { return ask(pid, "unlock", 0, NULL); }
#endif
