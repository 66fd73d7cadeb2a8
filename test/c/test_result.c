/* The ranges of ea_result do not overlap, and each has a text. So has the version. */
#include "support.h"

#include <eagain/result.h>
#include <eagain/version.h>

#include <stdio.h>

static void ranges(void **state) {
    (void)state;
    static const struct {
        ea_result r;
        bool count, wait, error;
        int number;
    } cases[] = {
        {0, true, false, false, 0},
        {1, true, false, false, 0},
        {SSIZE_MAX, true, false, false, 0},
        {-1, false, false, true, 1},
        {-EPIPE, false, false, true, EPIPE},
        {-EA_ERRNO_MAX, false, false, true, EA_ERRNO_MAX},
        {-EA_ERRNO_MAX - 1, false, false, false, 0},
        {EA_EOF, false, false, false, 0},
        {EA_WAIT_READABLE, false, true, false, 0},
        {EA_WAIT_WRITABLE, false, true, false, 0},
        {-SSIZE_MAX - 1, false, false, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(ea_is_count(cases[i].r), cases[i].count);
        assert_int_equal(ea_is_wait(cases[i].r), cases[i].wait);
        assert_int_equal(ea_is_error(cases[i].r), cases[i].error);
        assert_int_equal(ea_errno(cases[i].r), cases[i].number);
    }
}

static void texts(void **state) {
    (void)state;
    assert_string_equal(ea_result_text(0), "count");
    assert_string_equal(ea_result_text(4096), "count");
    assert_string_equal(ea_result_text(EA_EOF), "end of file");
    assert_string_equal(ea_result_text(EA_WAIT_READABLE), "wait readable");
    assert_string_equal(ea_result_text(EA_WAIT_WRITABLE), "wait writable");
    for (int e = 1; e < 130; e++) {
        const char *text = ea_result_text(-e);
        assert_non_null(text);
        assert_true(*text != '\0');
    }
    assert_string_equal(ea_result_text(-EPIPE), strerror(EPIPE));
    assert_string_equal(ea_result_text(-EA_ERRNO_MAX - 1), "unknown error");
    assert_non_null(ea_result_text(-EA_ERRNO_MAX));
}

static void version(void **state) {
    (void)state;
    char numbers[32];
    snprintf(numbers, sizeof(numbers), "%d.%d.%d", EA_VERSION_MAJOR, EA_VERSION_MINOR,
             EA_VERSION_PATCH);
    assert_string_equal(ea_version(), numbers);
    assert_string_equal(ea_version(), EA_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(texts),
        cmocka_unit_test(version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
