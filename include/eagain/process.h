/* Waiting for a child's end without a thread and without SIGCHLD. */
#ifndef EAGAIN_PROCESS_H
#define EAGAIN_PROCESS_H

#include <eagain/poll.h>

EA_BEGIN

/* A descriptor that turns readable when the child ends (pidfd_open(2)), close-on-exec and
 * non-blocking. Close it with close(2). -ESRCH no such child, -ENOSYS the platform has none (use
 * ea_process_wait_blocking in the offload pool), -EMFILE, -EINVAL (pid <= 0). */
EA_API ea_result ea_process_open(pid_t pid);

/* Blocks until a child matching pid (as waitpid(2): -1 any, 0 same group, < -1 that group) has
 * ended, and leaves it to be reaped. 0, or -ECHILD and the like as waitid(2). EINTR is retried. */
EA_API ea_result ea_process_wait_blocking(pid_t pid);

EA_END

#endif
