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
