# frozen_string_literal: true

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
      Addrinfo.getaddrinfo("localhost", 80)
      assert_operator Fiber.scheduler.stats[:offloaded], :>, before
    end
  end
end
