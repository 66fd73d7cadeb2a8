# frozen_string_literal: true

require "openssl"

module Bench
  module Rows
    # The echo row in TLS: a handshake for each client, which checks the certificate, then messages.
    class TlsEcho < TcpRow
      include Clients

      CLIENTS = 30
      EACH = 1_000
      MESSAGE = ("*" * 512).freeze

      group "HTTP and TLS"
      title "TLS echo over loopback, 30 clients, 1,000 round trips of 512 bytes each"
      unit "round trip"

      def prepare
        key = OpenSSL::PKey::EC.generate("prime256v1")
        @server = OpenSSL::SSL::SSLContext.new
        @server.cert = certificate(key)
        @server.key = key
        @client = OpenSSL::SSL::SSLContext.new
        @client.verify_mode = OpenSSL::SSL::VERIFY_PEER
        @client.verify_hostname = false
        @client.cert_store = OpenSSL::X509::Store.new.add_cert(@server.cert)
      end

      private

      def certificate(key)
        OpenSSL::X509::Certificate.new.tap do |it|
          it.version = 2
          it.serial = 1
          it.subject = it.issuer = OpenSSL::X509::Name.new([%w[CN localhost]])
          it.public_key = key
          it.not_before = Time.now - 60
          it.not_after = Time.now + 86_400
          it.sign(key, OpenSSL::Digest.new("SHA256"))
        end
      end

      def serve(connection)
        super(secure(connection, @server).accept)
      end

      def secure(socket, context)
        OpenSSL::SSL::SSLSocket.new(socket, context).tap { |tls| tls.sync_close = true }
      end

      def ask(port)
        socket = secure(connect(port), @client).connect
        count { echoed?(socket, MESSAGE) }
        socket.close
      end
    end
  end
end
