/* eagain: non-blocking I/O in which "not ready yet" costs nothing.
 *
 * Includes every public header of the core. Each may also be included alone,
 * from C17 or C++. */
#ifndef EAGAIN_H
#define EAGAIN_H

#include <eagain/event.h>
#include <eagain/fd.h>
#include <eagain/offload.h>
#include <eagain/op.h>
#include <eagain/poll.h>
#include <eagain/process.h>
#include <eagain/result.h>
#include <eagain/timer.h>
#include <eagain/try.h>
#include <eagain/version.h>
#include <eagain/wake.h>

#endif
