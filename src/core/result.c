/* Texts: for results, and the version. */
#include <eagain/result.h>
#include <eagain/version.h>

#include <string.h>

/* strerror(3) without its shared buffer: what glibc has, a constant table. Elsewhere (musl, the
 * BSDs) strerror(3) itself gives constant texts for the numbers that it knows. */
static const char *error_text(int error) {
#if defined(__GLIBC__) && defined(_GNU_SOURCE) && __GLIBC_PREREQ(2, 32)
    return strerrordesc_np(error);
#else
    return strerror(error);
#endif
}

const char *ea_result_text(ea_result r) {
    if (ea_is_count(r))
        return "count";
    if (r == EA_EOF)
        return "end of file";
    if (r == EA_WAIT_READABLE)
        return "wait readable";
    if (r == EA_WAIT_WRITABLE)
        return "wait writable";
    const char *text = ea_is_error(r) ? error_text(ea_errno(r)) : NULL;
    return text ? text : "unknown error";
}

const char *ea_version(void) {
    return EA_VERSION;
}
