/* Eagain::Stream: lines. See buffered.h. */
#include "buffered.h"

#include <string.h>

#define NONE SIZE_MAX

static VALUE limit_error;
static ID id_limit, option_ids[3]; /* chomp, limit, timeout */

/* What is asked for. */
struct line {
    VALUE separator; /* keeps `end` alive; nil: it is a constant, or there is none */
    const char *end; /* NULL: none, all is one line */
    size_t end_len;
    bool usual;     /* the end is "\n", to which chomp adds "\r" */
    bool paragraph; /* "\n" in front are no part of it */
    bool whole;     /* without its end it is none */
    bool chomp;
    size_t most;  /* bytes to return at most; NONE: any */
    size_t bound; /* it is an error if there are more, without the end; NONE: none */
    VALUE timeout;
    struct ea_patience patience;
};

/* --- Arguments. */

static void set_end(struct line *line, VALUE separator) {
    if (RSTRING_LEN(separator) == 0) {
        line->end = "\n\n";
        line->end_len = 2;
        line->paragraph = true;
        return;
    }
    line->separator = rb_str_new_frozen(separator); /* others may change theirs in a wait */
    line->end = RSTRING_PTR(line->separator);
    line->end_len = (size_t)RSTRING_LEN(line->separator);
    line->usual = line->end_len == 1 && *line->end == '\n';
}

static void set_most(struct line *line, VALUE most) {
    if (NIL_P(most))
        return;
    long n = NUM2LONG(most);
    line->most = n < 0 ? NONE : (size_t)n;
}

static void set_options(const struct ea_buffered *stream, struct line *line, const VALUE *values) {
    line->chomp = values[0] != Qundef && RTEST(values[0]);
    line->bound = stream->limit;
    if (values[1] != Qundef && !NIL_P(values[1])) {
        long n = NUM2LONG(values[1]);
        if (n < 0)
            rb_raise(rb_eArgError, "negative limit: %ld", n);
        line->bound = (size_t)n;
    }
    line->timeout = values[2];
    line->patience = ea_patience_of(values[2]);
}

/* separator = "\n", most = nil, chomp:, limit:, timeout: */
static void line_of(struct line *line, const struct ea_buffered *stream, int argc,
                    const VALUE *argv) {
    VALUE values[3];
    *line =
        (struct line){.separator = Qnil, .end = "\n", .end_len = 1, .usual = true, .most = NONE};
    ea_buffered_options(&argc, argv, option_ids, values, 3);
    rb_check_arity(argc, 0, 2);
    if (argc > 0) {
        VALUE separator = NIL_P(argv[0]) ? Qnil : rb_check_string_type(argv[0]);
        if (NIL_P(separator) && !NIL_P(argv[0]) && argc == 1) {
            set_most(line, argv[0]);
        } else if (NIL_P(argv[0])) {
            line->end = NULL;
            line->usual = false;
        } else {
            line->usual = false;
            set_end(line, NIL_P(separator) ? rb_str_to_str(argv[0]) : separator); /* TypeError */
        }
    }
    if (argc > 1)
        set_most(line, argv[1]);
    set_options(stream, line, values);
}

/* --- Looking for the end. */

static size_t find(const char *first, size_t from, size_t there, const struct line *line) {
    if (!line->end || from >= there)
        return NONE;
    const char *found = line->end_len == 1
                            ? memchr(first + from, *line->end, there - from)
                            : memmem(first + from, there - from, line->end, line->end_len);
    return found ? (size_t)(found - first) : NONE;
}

/* It has not been found. Can it still begin within the bound? */
static bool may_end(const char *first, size_t there, const struct line *line) {
    if (there <= line->bound)
        return true;
    size_t at = there >= line->end_len ? there - line->end_len + 1 : 0;
    for (; at <= line->bound; at++)
        if (memcmp(first + at, line->end, there - at) == 0)
            return true;
    return false;
}

/* Where a line of at most `most` bytes is cut, which are there: behind a whole character. NONE: that is not
 * there yet. */
static size_t cut(const struct ea_buffered *stream, size_t most) {
    rb_encoding *encoding = rb_enc_from_index(stream->encoding);
    const char *first = ea_bytes_first(&stream->in);
    const char *end = first + ea_bytes_length(&stream->in);
    if (rb_enc_mbmaxlen(encoding) == 1)
        return most;
    const char *head = rb_enc_left_char_head(first, first + most - 1, end, encoding);
    int n = rb_enc_precise_mbclen(head, end, encoding);
    if (MBCLEN_NEEDMORE_P(n))
        return NONE;
    size_t whole = (size_t)(head - first) + (size_t)(MBCLEN_CHARFOUND_P(n) ? n : 1);
    return whole > most ? whole : most;
}

NORETURN(static void too_long(size_t bound));
static void too_long(size_t bound) {
    VALUE error =
        rb_exc_new_str(limit_error, rb_sprintf("no end of the line in %" PRIuSIZE " bytes", bound));
    rb_ivar_set(error, id_limit, SIZET2NUM(bound));
    rb_exc_raise(error);
}

static VALUE take_line(struct ea_buffered *stream, size_t len, const struct line *line) {
    const char *first = ea_bytes_first(&stream->in);
    size_t less = 0;
    if (line->chomp && line->end && len >= line->end_len &&
        memcmp(first + len - line->end_len, line->end, line->end_len) == 0) {
        less = line->end_len;
        if (line->usual && len > 1 && first[len - 2] == '\r')
            less++;
    }
    return ea_buffered_take_text(stream, len, less);
}

/* Drops the "\n" that are next: false if there is nothing else. */
static bool skip_newlines(VALUE self, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    for (;;) {
        size_t there = ea_bytes_length(&stream->in), n = 0;
        while (n < there && ea_bytes_first(&stream->in)[n] == '\n')
            n++;
        if (n > 0)
            ea_buffered_taken(stream, n);
        if (n < there)
            return true;
        if (!ea_buffered_fill(self, 0, NULL, patience))
            return false;
    }
}

/* The source has ended. */
static VALUE last_line(struct ea_buffered *stream, const struct line *line) {
    size_t there = ea_bytes_length(&stream->in);
    if (there == 0 || line->whole)
        return Qnil;
    if (line->end && there > line->bound)
        too_long(line->bound);
    return take_line(stream, there, line); /* less than `most`, or half a character more */
}

static VALUE get_line(VALUE self, struct line *line) {
    struct ea_buffered *stream = ea_buffered(self);
    ea_buffered_check(stream);
    if (RB_UNLIKELY(line->most == 0))
        return ea_buffered_take_text(stream, 0, 0);
    if (RB_UNLIKELY(line->paragraph) && !skip_newlines(self, &line->patience))
        return Qnil;
    size_t looked = 0; /* the end begins nowhere before */
    uint64_t fronts = stream->fronts;
    for (;;) {
        size_t there = ea_bytes_length(&stream->in);
        const char *first = ea_bytes_first(&stream->in);
        if (RB_UNLIKELY(stream->fronts != fronts)) { /* somebody else reads, too */
            looked = 0;
            fronts = stream->fronts;
        }
        size_t found = find(first, looked, there, line);
        if (RB_LIKELY(found != NONE && found + line->end_len <= line->most)) {
            if (RB_UNLIKELY(found > line->bound))
                too_long(line->bound);
            VALUE text = take_line(stream, found + line->end_len, line);
            RB_GC_GUARD(line->separator);
            return text;
        }
        size_t at = there >= line->most ? cut(stream, line->most) : NONE;
        if (at != NONE)
            return take_line(stream, at, line);
        if (RB_UNLIKELY(line->end && !may_end(first, there, line)))
            too_long(line->bound);
        looked = there >= line->end_len ? there - line->end_len + 1 : 0;
        size_t want = line->end ? 0 : there; /* all: in large pieces */
        if (!ea_buffered_fill(self, want, NULL, &line->patience))
            return last_line(stream, line);
    }
}

/* --- Methods. */

/* call-seq:
 *   gets(separator = "\n", chomp: false, limit: self.limit, timeout: nil)         -> String or nil
 *   gets(maxlen, ...)                                                             -> String or nil
 *   gets(separator, maxlen, ...)                                                  -> String or nil
 *
 * The next line, in #external_encoding, with its separator unless chomp; the rest, if the source ends without one; nil
 * at the end. As IO#gets: separator nil is all until the end, "" a paragraph; with maxlen, at most so many bytes,
 * but no half characters. <tt>$_</tt> is left alone.
 *
 * LimitError for a line of more than limit bytes, its separator not counted: they are kept, to be read by whatever is
 * called next. TimeoutError when timeout seconds are over: what came meanwhile is kept. */
static VALUE stream_gets(int argc, VALUE *argv, VALUE self) {
    struct line line;
    line_of(&line, ea_buffered(self), argc, argv);
    return get_line(self, &line);
}

/* call-seq: readline(separator = "\n", maxlen = nil, chomp: false, limit: self.limit, timeout: nil) -> String
 *
 * As #gets, but EOFError at the end. */
static VALUE stream_readline(int argc, VALUE *argv, VALUE self) {
    VALUE text = stream_gets(argc, argv, self);
    if (NIL_P(text))
        rb_eof_error();
    return text;
}

/* call-seq:
 *   each_line(separator = "\n", maxlen = nil, chomp: false, limit: self.limit, timeout: nil) { |line| ... } -> self
 *   each_line(...)                                                                           -> Enumerator
 *
 * Yields each line until the end. timeout is for each of them. Otherwise as #gets. */
static VALUE stream_each_line(int argc, VALUE *argv, VALUE self) {
    RETURN_ENUMERATOR_KW(self, argc, argv, rb_keyword_given_p());
    struct line line;
    VALUE text;
    line_of(&line, ea_buffered(self), argc, argv);
    if (line.most == 0)
        rb_raise(rb_eArgError, "invalid limit: 0 for each_line");
    while (!NIL_P(text = get_line(self, &line))) {
        rb_yield(text);
        line.patience = ea_patience_of(line.timeout);
    }
    return self;
}

/* call-seq: read_until(separator, chomp: false, limit: self.limit, timeout: nil) -> String or nil
 *
 * What comes until the separator, which is of one byte or more, and that itself unless chomp. nil if the source ends
 * without one: what came is kept, to be read by whatever is called next. Otherwise as #gets. */
static VALUE stream_read_until(int argc, VALUE *argv, VALUE self) {
    struct line line = {.separator = Qnil, .most = NONE, .whole = true};
    VALUE values[3];
    ea_buffered_options(&argc, argv, option_ids, values, 3);
    rb_check_arity(argc, 1, 1);
    VALUE separator = argv[0];
    StringValue(separator);
    if (RSTRING_LEN(separator) == 0)
        rb_raise(rb_eArgError, "empty separator");
    set_end(&line, separator);
    line.usual = false;
    set_options(ea_buffered(self), &line, values);
    return get_line(self, &line);
}

/* call-seq: limit -> Integer
 *
 * The limit that was exceeded, in bytes. */
static VALUE error_limit(VALUE self) {
    return rb_attr_get(self, id_limit);
}

void ea_init_buffered_lines(VALUE module, VALUE klass) {
    static const char *const options[] = {"chomp", "limit", "timeout"};
    for (int i = 0; i < 3; i++)
        option_ids[i] = rb_intern(options[i]);
    id_limit = rb_intern("@limit");
    limit_error = rb_define_class_under(module, "LimitError", rb_eIOError);
    rb_gc_register_mark_object(limit_error);
    rb_define_method(limit_error, "limit", error_limit, 0);

    rb_include_module(klass, rb_mEnumerable);
    rb_define_method(klass, "gets", stream_gets, -1);
    rb_define_method(klass, "readline", stream_readline, -1);
    rb_define_method(klass, "each_line", stream_each_line, -1);
    rb_define_method(klass, "each", stream_each_line, -1);
    rb_define_method(klass, "read_until", stream_read_until, -1);
}
