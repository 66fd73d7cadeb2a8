# frozen_string_literal: true

# The cases of test_nonblock_ssl.rb: see nonblock_cases.rb.

require_relative "nonblock_cases"
require_relative "tls"

module NonblockCases
  module Pairs
    module_function

    # Both ends, before they have shaken hands.
    def fresh(version = nil)
      a, b = UNIXSocket.pair
      contexts = [TLS.server_context, TLS.client_context]
      contexts.each { |context| context.max_version = version } if version
      server = OpenSSL::SSL::SSLSocket.new(a, contexts[0])
      client = OpenSSL::SSL::SSLSocket.new(b, contexts[1])
      client.hostname = "localhost"
      [server, client, a, b]
    end

    def connected(version = nil)
      server, client, *raw = fresh(version)
      thread = Thread.new { server.accept }
      client.connect
      thread.join
      # The client has the session tickets that come before the first byte.
      server.write("x")
      client.readpartial(1)
      [server, client, *raw]
    end
  end

  NEEDS[:ssl] = -> { Pairs.connected }
  NEEDS[:ssl12] = -> { Pairs.connected(OpenSSL::SSL::TLS1_2_VERSION) }
  NEEDS[:ssl_fresh] = -> { Pairs.fresh }

  both = %i[ssl ssl12]
  on(both, "read: nothing") { |r, _, **x| r.read_nonblock(5, **x) }
  on(both, "read: data") { |r, w, **x| w.write("abc") && [r.read_nonblock(5, **x), try { r.read_nonblock(5, **x) }] }
  on(both, "read: some") { |r, w, **x| w.write("abcdef") && [r.read_nonblock(2, **x), try { r.read_nonblock(99, **x) }] }
  on(both, "read: with a buffer") { |r, w, **x| w.write("abc") && into("old") { |b| r.read_nonblock(5, b, **x) } }
  on(both, "read: nothing, with a buffer") { |r, _, **x| into("old text") { |b| r.read_nonblock(5, b, **x) } }
  on(both, "read: a frozen buffer") { |r, _, **x| r.read_nonblock(5, "old", **x) }
  on(both, "read: no buffer at all") { |r, _, **x| r.read_nonblock(5, 5, **x) }
  on(both, "read: what becomes a buffer") { |r, w, **x| w.write("abc") && into("old") { |b| r.read_nonblock(5, ToStr.new(b), **x) } }
  on(both, "read: length 0") { |r, _, **x| r.read_nonblock(0, **x) }
  on(both, "read: length -1") { |r, _, **x| r.read_nonblock(-1, **x) }
  on(both, "read: length nil") { |r, _, **x| r.read_nonblock(nil, **x) }
  on(both, "read: no length") { |r, _, **x| r.read_nonblock(**x) }
  on(both, "read: end of file") { |r, w, **x| w.close || [try { r.read_nonblock(5, **x) }, try { r.read_nonblock(5, **x) }] }
  on(both, "read: end of file, with a buffer") { |r, w, **x| w.close || into("old") { |b| r.read_nonblock(5, b, **x) } }
  on(both, "read: cut off") { |r, _, _, raw, **x| raw.close || r.read_nonblock(5, **x) }
  on(both, "read: read ahead") { |r, w, **x| w.write("ab\ncdef") && [r.gets, r.read_nonblock(2, **x), try { r.read_nonblock(9, **x) }, try { r.read_nonblock(9, **x) }] }
  on(both, "read: closed") { |r, _, **x| r.close || r.read_nonblock(5, **x) }
  on(both, "read: not TLS") { |r, _, _, raw, **x| raw.write("garbage" * 100) && r.read_nonblock(5, **x) }
  on(both, "read: inside a rescue") do |r, _, **x|
    raise "first"
  rescue RuntimeError
    try { r.read_nonblock(5, **x) }
  end
  # Private: nobody but openssl calls these, with that keyword.
  on(both, "sysread") { |r, w, **x| x = x.slice(:exception); [try { r.__send__(:sysread_nonblock, 5, **x) }, w.write("ab"), try { r.__send__(:sysread_nonblock, 5, +"old", **x) }] }
  on(both, "write") { |r, w, **x| [w.write_nonblock("abc", **x), r.readpartial(9)] }
  on(both, "write: full") { |_, w, **x| [try { nil until w.write_nonblock("x" * 9000, exception: false) == :wait_writable }, w.write_nonblock("x" * 9000, **x)] }
  on(both, "write: nothing") { |_, w, **x| w.write_nonblock("", **x) }
  on(both, "write: a symbol") { |_, w, **x| w.write_nonblock(:abc, **x) }
  on(both, "write: nil") { |_, w, **x| w.write_nonblock(nil, **x) }
  on(both, "write: no argument") { |_, w, **x| w.write_nonblock(**x) }
  on(both, "write: closed") { |_, w, **x| w.close || w.write_nonblock("a", **x) }
  on(both, "write: nobody there") { |_, w, raw, **x| raw.close || [try { w.write_nonblock("a", **x) }, try { w.write_nonblock("a", **x) }] }
  on(both, "write: after buffered ones") { |r, w, **x| w.sync = false; w.write("ab"); [w.write_nonblock("cd", **x), r.readpartial(9) + r.readpartial(9)] }
  on(both, "syswrite") { |_, w, **x| w.__send__(:syswrite_nonblock, "abc", **x.slice(:exception)) }

  on(:ssl_fresh, "read before a handshake") { |r, _, **x| r.read_nonblock(5, **x) }
  on(:ssl_fresh, "write before a handshake") { |r, _, **x| r.write_nonblock("a", **x) }
  on(:ssl_fresh, "accept: nobody") { |s, _, **x| s.accept_nonblock(**x) }
  on(:ssl_fresh, "connect: nobody") { |_, c, **x| c.connect_nonblock(**x) }
  on(:ssl_fresh, "a handshake") do |s, c, **x|
    steps = Array.new(4) { [try { c.connect_nonblock(**x) }, try { s.accept_nonblock(**x) }].map { |answer| [s, c].index(answer) || answer } }
    [steps, try { s.write("a") }, try { c.readpartial(1) }]
  end
  on(:ssl_fresh, "accept: an argument") { |s, _, **x| s.accept_nonblock(5, **x) }
  on(:ssl_fresh, "connect: a Hash for keywords") { |_, c, **x| c.connect_nonblock(x) }
  on(:ssl_fresh, "connect: the end") { |_, c, raw, **x| raw.close || c.connect_nonblock(**x) }
  on(:ssl_fresh, "connect: not TLS") { |_, c, raw, **x| raw.write("garbage" * 100) && c.connect_nonblock(**x) }
  on(:ssl_fresh, "accept: inside a rescue") do |s, _, **x|
    raise "first"
  rescue RuntimeError
    try { s.accept_nonblock(**x) }
  end
  on(:ssl_fresh, "what the methods are") do |s, _|
    [%i[accept_nonblock connect_nonblock].map { |name| [s.method(name).owner.to_s, s.method(name).arity, s.method(name).parameters] },
     %i[read_nonblock write_nonblock].map { |name| [s.method(name).owner.to_s, s.method(name).arity] },
     s.private_methods(false).grep(/\Asys.*_nonblock/).map(&:to_s).sort, s.class.private_method_defined?(:sysread_nonblock, false)].flatten.map(&:to_s)
  end
end

NonblockCases.print_results(NonblockCases::CASES.keys.grep(/\Assl/)) if $PROGRAM_NAME == __FILE__
