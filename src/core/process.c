/* A child's end as something to wait for: a descriptor where the kernel has them, else a thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif

#include <eagain/process.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The number is the same on every architecture; older headers do not have it. */
#if defined(__linux__) && !defined(SYS_pidfd_open) && !defined(__alpha__)
#define SYS_pidfd_open 434
#endif

ea_result ea_process_open(pid_t pid) {
    if (pid <= 0) {
        return -EINVAL;
    }
#ifdef SYS_pidfd_open
    /* PIDFD_NONBLOCK (Linux 5.10) is O_NONBLOCK; close-on-exec is implied. */
    long fd = syscall(SYS_pidfd_open, pid, O_NONBLOCK);
    if (fd < 0 && errno == EINVAL) {
        /* An older kernel, or not a process but a thread's id, which fails again. The descriptor
         * is ours alone, so its mode is ours to set. */
        fd = syscall(SYS_pidfd_open, pid, 0);
        if (fd >= 0) {
            fcntl((int)fd, F_SETFL, O_RDWR | O_NONBLOCK);
        }
    }
    if (fd >= 0) {
        return (ea_result)fd;
    }
    /* The call itself knows no EPERM: that is a sandbox which does not know the call. */
    return errno == EPERM ? -ENOSYS : -errno;
#else
    return -ENOSYS;
#endif
}

ea_result ea_process_wait_blocking(pid_t pid) {
    idtype_t type = P_PID;
    id_t id = 0;
    if (pid == INT_MIN) {
        return -ESRCH; /* as waitpid(2); -INT_MIN is no number */
    }
    if (pid == -1) {
        type = P_ALL;
    } else if (pid <= 0) {
        type = P_PGID;
        /* waitid(P_PGID, 0) means "ours" since Linux 5.4 only. */
        id = (id_t)(pid == 0 ? getpgrp() : -pid);
    } else {
        id = (id_t)pid;
    }
    siginfo_t info;
    int result;
    do {
        result = waitid(type, id, &info, WEXITED | WNOWAIT);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}
