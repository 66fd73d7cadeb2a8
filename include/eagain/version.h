/* The version of the library that these headers belong to, and of the one that runs. */
#ifndef EAGAIN_VERSION_H
#define EAGAIN_VERSION_H

#include <eagain/base.h>

#define EA_VERSION_MAJOR 0
#define EA_VERSION_MINOR 1
#define EA_VERSION_PATCH 0
#define EA_VERSION "0.1.0"

EA_BEGIN

/* EA_VERSION of the library that the program runs with, which need not be that of the headers that it
 * was compiled with. A constant; thread-safe. */
EA_API const char *ea_version(void);

EA_END

#endif
