# frozen_string_literal: true

require "openssl"

# A self-signed certificate for 127.0.0.1 and localhost, made once per process.
module TLS
  module_function

  def key = @key ||= OpenSSL::PKey::EC.generate("prime256v1")

  def certificate
    @certificate ||= OpenSSL::X509::Certificate.new.tap do |cert|
      cert.version = 2
      cert.serial = 1
      cert.subject = cert.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
      cert.public_key = key
      cert.not_before = Time.now - 3600
      cert.not_after = Time.now + 3600
      extensions = OpenSSL::X509::ExtensionFactory.new(cert, cert)
      cert.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
      cert.add_extension(extensions.create_extension("subjectAltName", "DNS:localhost,IP:127.0.0.1"))
      cert.sign(key, OpenSSL::Digest.new("SHA256"))
    end
  end

  # A store that trusts the certificate.
  def store = OpenSSL::X509::Store.new.tap { |store| store.add_cert(certificate) }

  def server_context
    OpenSSL::SSL::SSLContext.new.tap do |context|
      context.cert = certificate
      context.key = key
    end
  end

  def client_context
    OpenSSL::SSL::SSLContext.new.tap do |context|
      context.verify_mode = OpenSSL::SSL::VERIFY_PEER
      context.cert_store = store
    end
  end
end
