# frozen_string_literal: true

# A small HTTP/1.1 server for the demo: a thread per connection, keep-alive, GET and HEAD. It takes
# its time for each answer, as a server that asks a database would.
#
#   ruby examples/demo_server.rb SECONDS [CA_FILE]
#
# With CA_FILE it speaks TLS, with a certificate for 127.0.0.1 from an authority that it makes up at
# the start and whose certificate it writes there. It prints its URL, and serves until its stdin is
# closed, so that it cannot outlive whoever started it.

require "openssl"
require "socket"

# Certificates that are good for a day and nothing else.
class Authority
  def initialize
    @key = OpenSSL::PKey::EC.generate("prime256v1")
    @certificate = build("Demo authority", @key, "basicConstraints" => ["CA:TRUE", true],
                                                 "keyUsage" => ["keyCertSign,cRLSign", true])
  end

  attr_reader :certificate

  # OpenSSL::SSL::SSLContext of a server at +address+.
  def context_for(address)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    names = { "subjectAltName" => ["IP:#{address}", false], "extendedKeyUsage" => ["serverAuth", false] }
    OpenSSL::SSL::SSLContext.new.tap { |context| context.add_certificate(build(address, key, names), key) }
  end

  private

  def build(name, key, extensions)
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = 2
    certificate.serial = OpenSSL::BN.rand(64)
    certificate.subject = OpenSSL::X509::Name.new([["CN", name]])
    certificate.issuer = @certificate ? @certificate.subject : certificate.subject
    certificate.public_key = key
    certificate.not_before = Time.now - 3600
    certificate.not_after = Time.now + 86_400
    add(certificate, extensions)
    certificate.sign(@key, "SHA256")
  end

  def add(certificate, extensions)
    factory = OpenSSL::X509::ExtensionFactory.new(@certificate || certificate, certificate)
    extensions.each do |name, (value, critical)|
      certificate.add_extension(factory.create_extension(name, value, critical))
    end
  end
end

# One client, from its first request to its last.
class Connection
  # What ends the connection with an answer that says why.
  class Refused < StandardError; end

  LONGEST_LINE = 8192
  MOST_HEADERS = 100

  def initialize(io, delay)
    @io = io
    @delay = delay
  end

  def serve
    keep = true
    while keep && (line = @io.gets("\r\n", LONGEST_LINE))
      method, path, version = request(line)
      keep = keep_alive?(version, headers)
      sleep @delay
      answer("200 OK", page(path), keep, head: method == "HEAD")
    end
  rescue Refused => e
    answer(e.message, "#{e.message}\n", false)
  end

  private

  def request(line)
    parts = line.match(%r{\A([A-Z]+) (\S+) HTTP/(1\.[01])\r\n\z}) or raise Refused, "400 Bad Request"
    raise Refused, "405 Method Not Allowed" unless %w[GET HEAD].include?(parts[1])

    parts.captures
  end

  def headers
    fields = {}
    while (line = @io.gets("\r\n", LONGEST_LINE)) != "\r\n"
      name, value = line.to_s.match(/\A([^:\s]+):\s*(.*?)\s*\r\n\z/)&.captures
      raise Refused, "400 Bad Request" if name.nil? || fields.size == MOST_HEADERS

      fields[name.downcase] = value
    end
    # A body would be taken for the next request.
    raise Refused, "413 Content Too Large" if fields.key?("transfer-encoding") || fields["content-length"].to_i.positive?

    fields
  end

  def keep_alive?(version, fields)
    wish = fields["connection"].to_s.downcase
    version == "1.1" ? wish != "close" : wish == "keep-alive"
  end

  def page(path)
    "This is page #{path}\n#{"All work and no waiting makes Jack a fast boy.\n" * 80}"
  end

  def answer(status, body, keep, head: false)
    fields = "HTTP/1.1 #{status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: #{body.bytesize}\r\n" \
             "Connection: #{keep ? "keep-alive" : "close"}\r\n\r\n"
    @io.write(head ? fields : fields + body)
  end
end

# Accepts, and gives each connection a thread.
class DemoServer
  ADDRESS = "127.0.0.1"
  BACKLOG = 4096

  def initialize(delay, tls = nil)
    @delay = delay
    @tls = tls
    @listener = TCPServer.new(ADDRESS, 0)
    @listener.listen(BACKLOG)
  end

  def url
    "#{@tls ? "https" : "http"}://#{ADDRESS}:#{@listener.local_address.ip_port}"
  end

  def run
    loop do
      socket = @listener.accept
      Thread.new { serve(socket) }
    end
  end

  private

  def serve(socket)
    io = @tls ? OpenSSL::SSL::SSLSocket.new(socket, @tls).accept : socket
    Connection.new(io, @delay).serve
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
    nil # the client has gone: nobody is left to tell
  ensure
    io&.close
    socket.close
  end
end

if $PROGRAM_NAME == __FILE__
  delay, ca_file = ARGV
  if ca_file
    authority = Authority.new
    File.write(ca_file, authority.certificate.to_pem)
    tls = authority.context_for(DemoServer::ADDRESS)
  end
  server = DemoServer.new(Float(delay), tls)
  $stdout.puts server.url
  $stdout.flush
  Thread.new { server.run }.report_on_exception = true
  $stdin.read
end
