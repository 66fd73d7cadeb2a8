# frozen_string_literal: true

require "openssl"

module Bench
  module Rows
    # The echo row in TLS: a handshake for each client, which checks the certificate, then messages.
    class TlsEcho < TcpRow
      CLIENTS = 30
      MESSAGES = 1_000
      MESSAGE = ("*" * 512).freeze

      group "HTTP and TLS"
      title "TLS echo over loopback, 30 clients, 1,000 round trips of 512 bytes each"
      unit "round trip"

      def operations
        CLIENTS * scaled(MESSAGES)
      end

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

      def call
        @answers = 0
        port = listen(CLIENTS)
        CLIENTS.times { spawn { ask(port) } }
        wait
      end

      def result
        @answers
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
        answers = 0
        socket = secure(connect(port), @client).connect
        scaled(MESSAGES).times { answers += 1 if echoed?(socket, MESSAGE) }
        socket.close
        @answers += answers
      end
    end
  end
end
