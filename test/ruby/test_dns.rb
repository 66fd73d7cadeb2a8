# frozen_string_literal: true

require "open3"
require_relative "helper"

# Name resolution by the system's resolver, without blocking the others.
class DNSTest < EagainTest
  # Names of /etc/hosts with an IPv4 address.
  def names
    File.readlines("/etc/hosts").filter_map do |line|
      address, *all = line.sub(/#.*/, "").split
      [all.first, address] if address&.match?(/\A\d+\.\d+\.\d+\.\d+\z/) && all.first
    end
  end

  def test_localhost
    schedule do
      addresses = Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM).map(&:ip_address)
      assert_includes addresses & %w[127.0.0.1 ::1], addresses.first
      assert_equal Addrinfo.getaddrinfo("127.0.0.1", 80, nil, :STREAM).map(&:ip_address), ["127.0.0.1"]
    end
  end

  def test_names_of_the_hosts_file
    skip "/etc/hosts has no IPv4 names" if names.empty?
    schedule do
      names.each do |name, address|
        assert_includes Addrinfo.getaddrinfo(name, nil, :INET, :STREAM).map(&:ip_address), address
      end
    end
  end

  def test_agrees_with_blocking_resolution
    names = ["localhost", "127.0.0.1", "::1", "0.0.0.0"]
    expected = names.map { |name| Addrinfo.getaddrinfo(name, 80, nil, :STREAM).map(&:ip_address).uniq.sort }
    schedule do
      assert_equal expected, (names.map { |name| Addrinfo.getaddrinfo(name, 80, nil, :STREAM).map(&:ip_address).uniq.sort })
    end
  end

  def test_failing_name_raises_socket_error
    schedule do
      assert_raises(SocketError) { Addrinfo.getaddrinfo("no-such-name.invalid", 80) }
      assert_raises(SocketError) { TCPSocket.new("no-such-name.invalid", 80) }
    end
  end

  def test_tcp_socket_by_name
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      accepted = task { server.accept }
      client = TCPSocket.new("localhost", server.local_address.ip_port)
      await("accept") { accepted.done? }
      close_all(client, accepted.value, server)
    end
  end

  def test_server_by_name
    schedule do
      server = TCPServer.new("localhost", 0)
      client = Socket.tcp("localhost", server.local_address.ip_port)
      close_all(client, server)
    end
  end

  def test_many_at_once
    schedule do
      jobs = Array.new(100) { task { Addrinfo.tcp("localhost", 80).ip_address } }
      await("all") { jobs.all?(&:done?) }
      assert_equal 1, jobs.map(&:value).uniq.size
    end
  end

  def test_getaddrinfo_and_gethostbyname_forms
    schedule do
      assert_equal "127.0.0.1", IPSocket.getaddress("127.0.0.1")
      assert_includes %w[127.0.0.1 ::1], IPSocket.getaddress("localhost")
      refute_empty Socket.getaddrinfo("localhost", nil)
      refute_empty Socket.getifaddrs
      assert_kind_of Array, Addrinfo.tcp("127.0.0.1", 80).getnameinfo
    end
  end

  def test_numeric_addresses_with_a_zone
    schedule { assert_equal "::1", Addrinfo.tcp("::1", 80).ip_address }
  end

  def test_resolution_is_left_on_timeout
    require "timeout"
    schedule do
      # Whether it is quick or not, it must come back, with an answer or with Timeout::Error.
      100.times do
        Timeout.timeout(0.0005) { Addrinfo.getaddrinfo("localhost", 80) }
      rescue Timeout::Error
        nil
      end
      refute_empty Addrinfo.getaddrinfo("localhost", 80)
    end
  end

  def test_goes_to_the_pool
    only_ours
    schedule do
      before = Fiber.scheduler.stats[:offloaded]
      assert_raises(SocketError) { Addrinfo.getaddrinfo("no-such-name.invalid", 80) }
      assert_operator Fiber.scheduler.stats[:offloaded], :>, before
    end
  end

  # --- Names that /etc/hosts has.

  LOOK_UP = <<~'RUBY'
    require "socket"
    # The addresses, and whether a thread looked.
    def look_up(name)
      before = Fiber.scheduler.stats[:offloaded]
      found = Fiber.scheduler.address_resolve(name)
      [found, Fiber.scheduler.stats[:offloaded] > before]
    end

    def wait_for_the_clock_of_files = sleep(0.15)
  RUBY

  # Runs the script in a fiber, with files of its own in the place of /etc/hosts and /etc/nsswitch.conf, which are
  # in the constants HOSTS and SWITCH.
  def with_files(expected, hosts, script, switch: "hosts: files dns\n")
    only_ours
    Dir.mktmpdir do |dir|
      files = { "HOSTS" => hosts, "SWITCH" => switch }.map do |name, text|
        File.write(path = File.join(dir, name), text)
        "#{name} = #{path.dump}\n"
      end
      text = "#{LOOK_UP}#{files.join}Fiber.set_scheduler(Eagain::Scheduler.new)\nFiber.schedule do\n#{script}\nend\n"
      command = "mount --bind #{dir}/HOSTS /etc/hosts && mount --bind #{dir}/SWITCH /etc/nsswitch.conf && exec \"$@\""
      out, status = Open3.capture2e("unshare", "-m", "sh", "-c", command, "sh", RbConfig.ruby,
                                    "-I#{File.expand_path("../../lib", __dir__)}", "-reagain", "-e", text)
      skip "no mounts of our own: #{out}" if out.match?(/\A(unshare|mount):/)
      assert_equal [expected, true], [out, status.success?]
    end
  rescue Errno::ENOENT
    skip "unshare is not installed"
  end

  def test_a_name_in_the_hosts_file_needs_no_thread
    with_files(<<~OUT, <<~HOSTS, <<~'RUBY')
      [["127.0.0.9"], false]
      [["127.0.0.9"], false]
      [["127.0.0.9"], false]
      [["127.0.0.8", "127.0.0.9"], false]
      [["127.0.0.7"], false]
      [nil, true]
      true
    OUT
      127.0.0.9  First second# Third
      127.0.0.8\tsecond # fourth
      # 127.0.0.6 fifth
      127.0.0.7 last
    HOSTS
      p look_up("first")
      wait_for_the_clock_of_files
      p look_up("first"), look_up("FIRST")
      found, offloaded = look_up("second")
      p [found.sort, offloaded], look_up("last")
      p look_up("fifth.invalid")
      looked = 0
      trace = TracePoint.new(:c_call) { |call| looked += 1 if call.method_id == :uniq }
      trace.enable { 100.times { Addrinfo.getaddrinfo("first", 80) } }
      p looked.zero?
    RUBY
  end

  def test_a_hosts_file_that_changes_is_read_again
    with_files(<<~OUT, "127.0.0.9 name other\n", <<~'RUBY')
      [["127.0.0.9"], false]
      [["127.0.0.8"], false]
      [["127.0.0.7"], false]
      [nil, true]
    OUT
      p look_up("name.invalid"[0, 4])
      File.write(HOSTS, "127.0.0.8 name other\n") # the same size, and perhaps the same tick
      p look_up("name")
      wait_for_the_clock_of_files
      look_up("name")
      File.write(HOSTS, "127.0.0.7 name other.invalid\n")
      p look_up("name")
      File.write(HOSTS, "")
      p look_up("other.invalid")
    RUBY
  end

  def test_what_is_kept_of_the_hosts_file_is_not_the_callers
    with_files(<<~OUT, "127.0.0.9 name\n", <<~'RUBY')
      [["127.0.0.9"], false]
    OUT
      wait_for_the_clock_of_files
      2.times { look_up("name")[0].clear }
      p look_up("name")
    RUBY
  end

  ["hosts: dns files\n", "hosts: files [SUCCESS=continue] dns\n", ""].each_with_index do |switch, number|
    define_method("test_a_resolver_that_may_ask_others_first_goes_to_the_pool_#{number}") do
      with_files(<<~OUT, "127.0.0.9 name.invalid\n", <<~'RUBY', switch: switch)
        true
      OUT
        p look_up("name.invalid")[1]
      RUBY
    end
  end

  def test_a_long_hosts_file_is_left_to_the_pool
    with_files(<<~OUT, "127.0.0.9 name\n#{"0.0.0.0 blocked.invalid\n" * 3000}", <<~'RUBY')
      [["127.0.0.9"], true]
    OUT
      p look_up("name")
    RUBY
  end

  def test_a_task_that_looks_up_names_gives_way
    skip "/etc/hosts has no IPv4 names" if names.empty?
    schedule do
      others = 0
      going = true
      other = task { others += 1 and sleep(0) while going }
      before = others
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      while others - before < 3 && Process.clock_gettime(Process::CLOCK_MONOTONIC) - start < PATIENCE
        Addrinfo.getaddrinfo("localhost", 80)
      end
      assert_operator others - before, :>=, 3
      going = false
      await("other") { other.done? }
    end
  end
end
