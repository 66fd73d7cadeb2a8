/* What a descriptor may be ready for. */
#ifndef EAGAIN_EVENT_H
#define EAGAIN_EVENT_H

/* The values are those of poll(2) on Linux, and of Ruby's IO::READABLE, PRIORITY, WRITABLE. */
enum ea_event {
    EA_READABLE = 1,
    EA_PRIORITY = 2,
    EA_WRITABLE = 4,
    EA_ERROR = 8,   /* reported only */
    EA_HANGUP = 16, /* reported only; always together with EA_READABLE */
};

#endif
