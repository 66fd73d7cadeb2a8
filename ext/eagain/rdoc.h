/* The methods that are written in C, for RDoc, and for nobody else: no file includes this one. RDoc reads
 * each file alone, and so knows in the others of no module that they are defined in; it finds the comments
 * there by what stands behind "in". test_docs.rb tells when a method is missing here. */

/* The try calls make one attempt, and never wait, whatever the mode of the descriptor. Each answers what it
 * has read, a count, or the new object; +nil+ at the end of a file or stream; <tt>:wait_readable</tt> or
 * <tt>:wait_writable</tt> when it would block. Any other error is raised: Errno, IOError for a closed IO.
 * After <tt>require "eagain/io"</tt> they are methods of IO, BasicSocket and OpenSSL::SSL::SSLSocket, too. */
rb_mEagain = rb_define_module("Eagain");
rb_mSSLMethods = rb_define_module_under(rb_mEagain, "SSLMethods");
rb_cBasicSocket = rb_define_class("BasicSocket", rb_cIO);
rb_mOpenSSL = rb_define_module("OpenSSL");
rb_mSSL = rb_define_module_under(rb_mOpenSSL, "SSL");
rb_cSSLSocket = rb_define_class_under(rb_mSSL, "SSLSocket", rb_cObject);

/* The names of the backends that were compiled in (frozen Array of String), the best first. */
rb_define_const(rb_mEagain, "BACKENDS", names);

rb_define_singleton_method(rb_mEagain, "tryread", s_tryread, -1);             /* in try_stream.c */
rb_define_singleton_method(rb_mEagain, "tryreadv", s_tryreadv, -1);           /* in try_stream.c */
rb_define_singleton_method(rb_mEagain, "trypeek", s_trypeek, -1);             /* in try_stream.c */
rb_define_singleton_method(rb_mEagain, "trywrite", s_trywrite, 2);            /* in try_stream.c */
rb_define_singleton_method(rb_mEagain, "trywritev", s_trywritev, 2);          /* in try_stream.c */
rb_define_singleton_method(rb_mEagain, "tryrecv", s_tryrecv, -1);             /* in try_socket.c */
rb_define_singleton_method(rb_mEagain, "tryrecvfrom", s_tryrecvfrom, -1);     /* in try_socket.c */
rb_define_singleton_method(rb_mEagain, "trysend", s_trysend, -1);             /* in try_socket.c */
rb_define_singleton_method(rb_mEagain, "tryrecvmsg", s_tryrecvmsg, -1);       /* in try_message.c */
rb_define_singleton_method(rb_mEagain, "trysendmsg", s_trysendmsg, -1);       /* in try_message.c */
rb_define_singleton_method(rb_mEagain, "tryaccept", s_tryaccept, -1);         /* in try_accept.c */
rb_define_singleton_method(rb_mEagain, "tryconnect", s_tryconnect, 2);        /* in try_accept.c */
rb_define_singleton_method(rb_mEagain, "trysendfile", s_trysendfile, -1);     /* in try_file.c */
rb_define_singleton_method(rb_mEagain, "trysplice", s_trysplice, 3);          /* in try_file.c */
rb_define_singleton_method(rb_mEagain, "tryopen", s_tryopen, -1);             /* in try_file.c */
rb_define_singleton_method(rb_mEagain, "read", s_read, -1);                   /* in twins.c */
rb_define_singleton_method(rb_mEagain, "write", s_write, -1);                 /* in twins.c */
rb_define_singleton_method(rb_mEagain, "recv", s_recv, -1);                   /* in twins.c */
rb_define_singleton_method(rb_mEagain, "sendto", s_sendto, -1);               /* in twins.c */
rb_define_singleton_method(rb_mEagain, "accept", s_accept, -1);               /* in wait.c */
rb_define_singleton_method(rb_mEagain, "wait_readable", s_wait_readable, -1); /* in wait.c */
rb_define_singleton_method(rb_mEagain, "wait_writable", s_wait_writable, -1); /* in wait.c */
rb_define_singleton_method(rb_mEagain, "wait", s_wait, -1);                   /* in wait.c */
rb_define_singleton_method(rb_mEagain, "remote_address", remote_address, 1);  /* in memory.c */
rb_define_singleton_method(rb_mEagain, "local_address", local_address, 1);    /* in memory.c */

/* The time that a call with <tt>timeout:</tt> had is over, or that of IO#timeout. An IO::TimeoutError, or, on a
 * Ruby that has none (before 3.2), a Timeout::Error. */
rb_eTimeoutError = rb_define_class_under(rb_mEagain, "TimeoutError", rb_eIOError);
rb_define_method(rb_eTimeoutError, "written", error_written, 0); /* in wait.c */

/* A buffered reader and writer over an IO, a TLS session, or another such object: the fast lane.
 *
 *   Eagain::Stream.open(socket, limit: 8192) do |stream|
 *     while (line = stream.gets(chomp: true))
 *       stream.puts line.upcase
 *     end
 *   end
 *
 * It reads and writes as IO does, with or without a scheduler, but by calls that try first and wait only if they have
 * to, with no object and no frame of Ruby's on the way. One system call fills the buffer, another empties it. A task
 * that waits holds no buffer.
 *
 * Every call that may wait takes <tt>timeout:</tt>, in seconds for the whole call, and raises TimeoutError when it is
 * over. Whatever is raised in a wait, nothing that was read or written is lost.
 *
 * Several tasks and threads may use a stream at once: each call's bytes, its line, what it writes, are its own. */
rb_cStream = rb_define_class_under(rb_mEagain, "Stream", rb_cObject);
rb_define_singleton_method(rb_cStream, "open", stream_open, -1);            /* in buffered.c */
rb_define_method(rb_cStream, "initialize", stream_initialize, -1);          /* in buffered.c */
rb_define_method(rb_cStream, "io", stream_io, 0);                           /* in buffered.c */
rb_define_method(rb_cStream, "to_io", stream_to_io, 0);                     /* in buffered.c */
rb_define_method(rb_cStream, "timeout", stream_timeout, 0);                 /* in buffered.c */
rb_define_method(rb_cStream, "timeout=", stream_set_timeout, 1);            /* in buffered.c */
rb_define_method(rb_cStream, "limit", stream_limit, 0);                     /* in buffered.c */
rb_define_method(rb_cStream, "limit=", stream_set_limit, 1);                /* in buffered.c */
rb_define_method(rb_cStream, "buffer_size", stream_buffer_size, 0);         /* in buffered.c */
rb_define_method(rb_cStream, "external_encoding", stream_encoding, 0);      /* in buffered.c */
rb_define_method(rb_cStream, "external_encoding=", stream_set_encoding, 1); /* in buffered.c */
rb_define_method(rb_cStream, "pending", stream_pending, 0);                 /* in buffered.c */
rb_define_method(rb_cStream, "unwritten", stream_unwritten, 0);             /* in buffered.c */
rb_define_method(rb_cStream, "closed?", stream_closed_p, 0);                /* in buffered.c */
rb_define_method(rb_cStream, "read", stream_read, -1);                      /* in buffered_read.c */
rb_define_method(rb_cStream, "read_exact", stream_read_exact, -1);          /* in buffered_read.c */
rb_define_method(rb_cStream, "readpartial", stream_readpartial, -1);        /* in buffered_read.c */
rb_define_method(rb_cStream, "tryread", stream_tryread, -1);                /* in buffered_read.c */
rb_define_method(rb_cStream, "peek", stream_peek, -1);                      /* in buffered_read.c */
rb_define_method(rb_cStream, "getbyte", stream_getbyte, -1);                /* in buffered_read.c */
rb_define_method(rb_cStream, "readbyte", stream_readbyte, -1);              /* in buffered_read.c */
rb_define_method(rb_cStream, "eof?", stream_eof_p, -1);                     /* in buffered_read.c */
rb_define_method(rb_cStream, "eof", stream_eof_p, -1);                      /* in buffered_read.c */
rb_define_method(rb_cStream, "gets", stream_gets, -1);               /* in buffered_lines.c */
rb_define_method(rb_cStream, "readline", stream_readline, -1);       /* in buffered_lines.c */
rb_define_method(rb_cStream, "each_line", stream_each_line, -1);     /* in buffered_lines.c */
rb_define_method(rb_cStream, "each", stream_each_line, -1);          /* in buffered_lines.c */
rb_define_method(rb_cStream, "read_until", stream_read_until, -1);   /* in buffered_lines.c */
rb_define_method(rb_cStream, "write", stream_write, -1);             /* in buffered_write.c */
rb_define_method(rb_cStream, "<<", stream_append, 1);                /* in buffered_write.c */
rb_define_method(rb_cStream, "puts", stream_puts, -1);               /* in buffered_write.c */
rb_define_method(rb_cStream, "print", stream_print, -1);             /* in buffered_write.c */
rb_define_method(rb_cStream, "printf", stream_printf, -1);           /* in buffered_write.c */
rb_define_method(rb_cStream, "trywrite", stream_trywrite, 1);        /* in buffered_write.c */
rb_define_method(rb_cStream, "flush", stream_flush, -1);             /* in buffered_write.c */
rb_define_method(rb_cStream, "sync", stream_sync, 0);                /* in buffered_write.c */
rb_define_method(rb_cStream, "sync=", stream_set_sync, 1);           /* in buffered_write.c */
rb_define_method(rb_cStream, "close", stream_close, -1);             /* in buffered_write.c */
rb_define_method(rb_cStream, "close_write", stream_close_write, -1); /* in buffered_write.c */

/* A line is longer than it may be: see Stream#gets. */
rb_eLimitError = rb_define_class_under(rb_mEagain, "LimitError", rb_eIOError);
rb_define_method(rb_eLimitError, "limit", error_limit, 0); /* in buffered_lines.c */

/* Ruby's Fiber::Scheduler, for who wants its hooks without tasks:
 *
 *   Fiber.set_scheduler(Eagain::Scheduler.new)
 *   Fiber.schedule { ... }
 *
 * It has every hook that the running Ruby knows; they are for Ruby to call. What follows is for you. */
rb_cScheduler = rb_define_class_under(rb_mEagain, "Scheduler", rb_cObject);

/* The version of Ruby's scheduler hooks that this was compiled for (Integer). */
rb_define_const(rb_cScheduler, "INTERFACE_VERSION", version);

rb_define_method(rb_cScheduler, "initialize", scheduler_initialize, -1); /* in scheduler.c */
rb_define_method(rb_cScheduler, "run", scheduler_run, 0);                /* in scheduler.c */
rb_define_method(rb_cScheduler, "close", scheduler_close, 0);            /* in scheduler.c */
rb_define_method(rb_cScheduler, "closed?", scheduler_closed_p, 0);       /* in scheduler.c */
rb_define_method(rb_cScheduler, "backend", scheduler_backend, 0);        /* in scheduler.c */
rb_define_method(rb_cScheduler, "stats", scheduler_stats, 0);            /* in scheduler.c */
rb_define_method(rb_cScheduler, "push", scheduler_push, 1);              /* in hooks.c */
rb_define_method(rb_cScheduler, "yield", scheduler_yield, 0);            /* in hooks.c */
rb_define_method(rb_cScheduler, "raise", scheduler_interrupt, 2);        /* in hooks.c */

/* What can be set after <tt>require "eagain/nonblock"</tt>: whether would-block exceptions have a backtrace. */
rb_mNonblock = rb_define_module_under(rb_mEagain, "Nonblock");
rb_define_singleton_method(rb_mNonblock, "backtraces", s_backtraces, 0);      /* in nonblock.c */
rb_define_singleton_method(rb_mNonblock, "backtraces=", s_set_backtraces, 1); /* in nonblock.c */

/* --- After require "eagain/io". */

/* Document-method: IO::tryopen
 *
 * call-seq:
 *   IO.tryopen(path, mode = "r", perm = 0666)   -> File, :wait_readable or :wait_writable
 *   File.tryopen(path, mode = "r", perm = 0666) -> File, :wait_readable or :wait_writable
 *
 * See Eagain.tryopen. After <tt>require "eagain/io"</tt>. */
rb_define_singleton_method(rb_cIO, "tryopen", io_tryopen, -1);
rb_define_method(rb_cIO, "tryread", m_tryread, -1);    /* in try_stream.c */
rb_define_method(rb_cIO, "tryreadv", m_tryreadv, -1);  /* in try_stream.c */
rb_define_method(rb_cIO, "trypeek", m_trypeek, -1);    /* in try_stream.c */
rb_define_method(rb_cIO, "trywrite", m_trywrite, 1);   /* in try_stream.c */
rb_define_method(rb_cIO, "trywritev", m_trywritev, 1); /* in try_stream.c */
rb_define_method(rb_cIO, "trysplice", m_trysplice, 2); /* in try_file.c */

rb_define_method(rb_cBasicSocket, "tryrecv", m_tryrecv, -1);         /* in try_socket.c */
rb_define_method(rb_cBasicSocket, "tryrecvfrom", m_tryrecvfrom, -1); /* in try_socket.c */
rb_define_method(rb_cBasicSocket, "trysend", m_trysend, -1);         /* in try_socket.c */
rb_define_method(rb_cBasicSocket, "tryrecvmsg", m_tryrecvmsg, -1);   /* in try_message.c */
rb_define_method(rb_cBasicSocket, "trysendmsg", m_trysendmsg, -1);   /* in try_message.c */
rb_define_method(rb_cBasicSocket, "tryaccept", m_tryaccept, -1);     /* in try_accept.c */
rb_define_method(rb_cBasicSocket, "tryconnect", m_tryconnect, 1);    /* in try_accept.c */
rb_define_method(rb_cBasicSocket, "trysendfile", m_trysendfile, -1); /* in try_file.c */

rb_include_module(rb_cSSLSocket, rb_mSSLMethods);
