# frozen_string_literal: true

require_relative "nonblock_support"
require_relative "nonblock_ssl_cases"

# OpenSSL::SSL::SSLSocket after require "eagain/nonblock".
class NonblockSSLTest < NonblockComparison
  compare File.join(__dir__, "nonblock_ssl_cases.rb"), NonblockCases::CASES.keys.grep(/\Assl/)

  PRELUDE = <<~RUBY
    $LOAD_PATH.unshift #{__dir__.dump}
    require "nonblock_ssl_cases"
    OURS = OpenSSL::SSL::SSLSocket.instance_method(:sysread_nonblock).source_location&.first.to_s.include?("nonblock/ssl.rb")
    def caught
      yield
      nil
    rescue Exception => e
      e
    end
    S, C = NonblockCases::Pairs.connected
  RUBY

  def ours(script, *flags, **options) = output_of(PRELUDE + script, "-reagain/nonblock", *flags, **options)

  def assert_prints(expected, script, *flags, **options) = assert_equal(expected, ours(script, *flags, **options))

  # One that would block, rescued by its own name and by the others'.
  WORKS = <<~'RUBY'
    a, b = UNIXSocket.pair
    begin
      OpenSSL::SSL::SSLSocket.new(a, OpenSSL::SSL::SSLContext.new).connect_nonblock
    rescue OpenSSL::SSL::SSLError => e
      puts [e.class, IO::WaitReadable === e, e.message, e.backtrace.size, Enumerable.singleton_methods.inspect].join(" ")
    end
  RUBY
  WORKED = "OpenSSL::SSL::SSLErrorWaitReadable true read would block 0 []\n"

  def run_ruby(script, *flags)
    out, err, status = run_command({}, RUBY, "-w", "-W:no-experimental", "-I#{LIB}", *flags, "-e", script)
    assert status.success?, err
    assert_empty err.lines.grep(/nonblock/)
    out
  end

  def test_openssl_loaded_after
    assert_equal WORKED, run_ruby("require 'openssl'\n#{WORKS}", "-reagain/nonblock")
  end

  def test_openssl_loaded_before
    assert_equal WORKED, run_ruby(WORKS, "-ropenssl", "-reagain/nonblock")
  end

  def test_openssl_by_autoload
    assert_equal WORKED, run_ruby("autoload :OpenSSL, 'openssl'\nrequire 'eagain/nonblock'\np $\".grep(/openssl/).size\n#{WORKS}").sub("0\n", "")
    assert_equal WORKED, run_ruby("require 'eagain/nonblock'\nautoload :OpenSSL, 'openssl'\n#{WORKS}")
  end

  def test_openssl_by_net_http
    assert_equal WORKED, run_ruby("require 'net/http'\nNet::HTTP::HTTPSession rescue 0\nrequire 'openssl'\n#{WORKS}", "-reagain/nonblock")
  end

  def test_openssl_is_not_loaded_by_us
    assert_equal "[]\nfalse\n", run_ruby("p $\".grep(/openssl/), Object.const_defined?(:OpenSSL)", "-reagain/nonblock")
  end

  # Those who include Enumerable notice nothing, whatever they are.
  def test_enumerable_meanwhile
    assert_equal "[1, 2]\n[:hook, :C]\n[1]\n", run_ruby(<<~'RUBY', "-reagain/nonblock")
      class A
        def self.name(odd) = odd
        include Enumerable
        def each = yield(1)
      end
      module B; include Enumerable; end
      class C; include B; def each = [1, 2].each { |x| yield x }; end
      p C.new.to_a
      module Hook; def included(base) = (p [:hook, base.name.to_sym]; super); end
      Enumerable.extend(Hook)
      Object.send(:remove_const, :C)
      class C; end
      C.include(Enumerable)
      p A.new.to_a
    RUBY
  end

  def test_what_was_prepended_before_stays_in_front
    assert_equal "[:mine, :wait_readable]\n", run_ruby(<<~RUBY)
      require "openssl"
      module Mine; def sysread_nonblock(*, **) = [:mine, super]; end
      OpenSSL::SSL::SSLSocket.prepend(Mine)
      require "eagain/nonblock"
      #{PRELUDE}
      p S.read_nonblock(5, exception: false)
    RUBY
  end

  def test_an_exception_as_rubys_own
    expected, actual = [[], ["-I#{LIB}", "-reagain/nonblock"]].map do |flags|
      out, err, status = run_command({}, RUBY, "-W:no-experimental", *flags, "-e", PRELUDE + <<~'RUBY')
        [-> { S.read_nonblock(5) }, -> { loop { S.write_nonblock("x" * 9000) } }].each do |call|
          e = caught(&call)
          p e, e.class.ancestors, e.message, e.message.frozen?, e.message.encoding, e.backtrace.class, e.cause
          p [OpenSSL::SSL::SSLError, OpenSSL::OpenSSLError, IO::WaitReadable, IO::WaitWritable, StandardError].map { |c| c === e }
          p Marshal.load(Marshal.dump(e)), e == e.dup, e.exception("other"), e.set_backtrace(["f:1"]), e.full_message(highlight: false)
        end
      RUBY
      assert status.success?, err
      out
    end
    assert_equal expected, actual
  end

  def test_backtraces
    assert_prints("true\ntrue\n0\n", <<~'RUBY')
      Eagain::Nonblock.backtraces = true
      e = caught { S.read_nonblock(5) }
      p e.backtrace.any?(/-e:\d+/), e.backtrace_locations.map(&:to_s) == e.backtrace
      Eagain::Nonblock.backtraces = false
      p caught { S.read_nonblock(5) }.backtrace.size
    RUBY
  end

  # openssl copies the Hash of its keywords; more than that is ours.
  def test_allocations
    assert_prints("[1.0, 2.0]\n", <<~'RUBY')
      buffer = +""
      quiet = -> { S.read_nonblock(5, buffer, exception: false) }
      loud = lambda do
        S.read_nonblock(5, buffer)
      rescue IO::WaitReadable
      end
      counts = [quiet, loud].map do |call|
        count = lambda do |times|
          before = GC.stat(:total_allocated_objects)
          i = 0
          call.call while (i += 1) <= times
          GC.stat(:total_allocated_objects) - before
        end
        count.call(10)
        (count.call(2010) - count.call(10)) / 2000.0
      end
      p counts
    RUBY
  end

  def test_many_create_no_class
    assert_prints("true\n", <<~'RUBY')
      call = -> { S.read_nonblock(5) rescue 0 }
      1000.times { call.call }
      count = -> { GC.start; [ObjectSpace.count_objects.values_at(:T_CLASS, :T_ICLASS), RubyVM.stat] }
      before = count.call
      10_000.times { call.call }
      p before == count.call
    RUBY
  end

  def test_gc_stress
    assert_prints("[:wait_readable, \"read would block\", 3, \"abc\", \"read would block\"]\n", <<~'RUBY')
      a, b = NonblockCases::Pairs.fresh
      GC.stress = true
      results = [S.read_nonblock(5, exception: false), caught { S.read_nonblock(5) }.message, C.write_nonblock("abc"),
                 S.read_nonblock(5), caught { a.accept_nonblock }.message]
      GC.stress = false
      p results
    RUBY
  end

  # A page from one end to the other, by those who wait in every way.
  def test_a_conversation
    assert_prints("[1000000, 1000000, true]\n", <<~'RUBY')
      data = Random.bytes(1_000_000)
      writer = Thread.new do
        rest = data.dup
        until rest.empty?
          begin
            rest = rest.byteslice(C.write_nonblock(rest)..)
          rescue IO::WaitWritable
            C.to_io.wait_writable
          rescue IO::WaitReadable
            C.to_io.wait_readable
          end
        end
        C.close
        data.bytesize
      end
      got = +""
      begin
        loop { got << S.read_nonblock(10_000) }
      rescue IO::WaitReadable
        S.to_io.wait_readable
        retry
      rescue EOFError
      end
      p [writer.value, got.bytesize, got == data]
    RUBY
  end

  def test_net_http_over_tls
    assert_prints("[\"200\", 100000, true]\n", <<~'RUBY')
      require "net/http"
      body = Random.bytes(50_000).unpack1("H*")
      server = TCPServer.new("127.0.0.1", 0)
      Thread.new do
        ssl = OpenSSL::SSL::SSLSocket.new(server.accept, TLS.server_context)
        ssl.accept
        nil until ssl.gets == "\r\n"
        ssl.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
        ssl.close
      end
      http = Net::HTTP.new("localhost", server.local_address.ip_port)
      http.ipaddr = "127.0.0.1"
      http.use_ssl = true
      http.cert_store = TLS.store
      response = http.get("/")
      p [response.code, response.body.bytesize, response.body == body]
    RUBY
  end
end
