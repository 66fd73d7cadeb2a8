/* Names that are in /etc/hosts. */
#ifndef EA_RB_HOSTS_H
#define EA_RB_HOSTS_H

#include <ruby.h>
#include <sys/stat.h>

/* What is known of the file; a member of owner, which marks it. Zeroed: nothing yet. */
struct ea_hosts {
    VALUE names;      /* Hash: those in the file, in lower case; Qfalse: it has yet to be read */
    VALUE answers;    /* Hash: name as it was asked for => Array of addresses */
    struct stat seen; /* of the file that was read; zero: it may be another already */
};

enum ea_hosts_answer {
    EA_HOSTS_UNKNOWN, /* it is not in the file, or others may be asked first: the resolver may wait */
    EA_HOSTS_ASK,     /* it is: the resolver answers at once */
    EA_HOSTS_KNOWN,   /* *answer is what it answered */
};

enum ea_hosts_answer ea_hosts_find(struct ea_hosts *hosts, VALUE owner, VALUE name, VALUE *answer);
/* What the resolver said of a name for which the last find was EA_HOSTS_ASK. */
void ea_hosts_keep(struct ea_hosts *hosts, VALUE name, VALUE answer);
void ea_hosts_mark(const struct ea_hosts *hosts);

#endif
