/* The version of the library that these headers belong to. */
#ifndef EAGAIN_VERSION_H
#define EAGAIN_VERSION_H

#define EA_VERSION_MAJOR 0
#define EA_VERSION_MINOR 1
#define EA_VERSION_PATCH 0
#define EA_VERSION "0.1.0"

#endif
